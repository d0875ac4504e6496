#include "metrics/gpu_metrics.h"

namespace fathom::metrics {
namespace {

struct Figure {
  const char *name, *help;
  std::optional<double> GpuReading::*value;
};

constexpr Figure kFigures[] = {
    {"fathom:gpu_memory_used_bytes", "Memory of the GPU that is used, by all processes.",
     &GpuReading::used_bytes},
    {"fathom:gpu_memory_total_bytes", "Memory of the GPU.", &GpuReading::total_bytes},
    {"fathom:gpu_temperature_celsius", "Temperature of the GPU.", &GpuReading::celsius},
    {"fathom:gpu_power_watts", "Power that the GPU draws.", &GpuReading::watts},
    {"fathom:gpu_busy_ratio", "Part of the last second or less in which a kernel ran, 0 to 1.",
     &GpuReading::busy_ratio},
};

struct ShownGpu {
  std::string bus_id;
  std::vector<std::pair<const Figure*, Gauge*>> gauges;
};

struct ShownGpus {
  std::unique_ptr<Nvml> nvml;
  std::vector<ShownGpu> gpus;

  // A value that is not told any more stays what it was.
  void show() const {
    for (const ShownGpu& gpu : gpus) {
      const GpuReading reading = nvml->read(gpu.bus_id);
      for (const auto& [figure, gauge] : gpu.gauges)
        if (const std::optional<double> value = reading.*figure->value) gauge->set(*value);
    }
  }
};

}  // namespace

Registry::Collector add_gpu_metrics(Registry& registry, std::unique_ptr<Nvml> nvml,
                                    const std::vector<std::string>& bus_ids) {
  const auto shown = std::make_shared<ShownGpus>();
  shown->nvml = std::move(nvml);
  for (const std::string& bus_id : bus_ids) {
    const GpuReading first = shown->nvml->read(bus_id);
    const std::string number = std::to_string(shown->gpus.size());
    ShownGpu& gpu = shown->gpus.emplace_back(ShownGpu{bus_id, {}});
    for (const Figure& figure : kFigures)
      if (first.*figure.value)
        gpu.gauges.emplace_back(
            &figure, &registry.gauge(
                         {.name = figure.name, .help = figure.help, .labels = {{"gpu", number}}}));
  }
  return registry.add_collector([shown] { shown->show(); });
}

}  // namespace fathom::metrics
