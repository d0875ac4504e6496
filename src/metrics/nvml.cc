#include "metrics/nvml.h"

#include "base/shared_library.h"

namespace fathom::metrics {
namespace {

using NvmlDevice = struct nvmlDevice_st*;

constexpr int kNvmlSuccess = 0;
constexpr int kNvmlTemperatureGpu = 0;  // the sensor on the die

struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;
};
struct NvmlUtilization {
  unsigned int gpu = 0, memory = 0;  // percent
};

}  // namespace

struct Nvml::Functions {
  int (*init)() = nullptr;
  int (*shut_down)() = nullptr;
  const char* (*error_words)(int result) = nullptr;
  int (*find_device)(const char* bus_id, NvmlDevice* device) = nullptr;
  int (*memory)(NvmlDevice device, NvmlMemory* memory) = nullptr;
  int (*temperature)(NvmlDevice device, int sensor, unsigned int* celsius) = nullptr;
  int (*power)(NvmlDevice device, unsigned int* milliwatts) = nullptr;
  int (*utilization)(NvmlDevice device, NvmlUtilization* utilization) = nullptr;

  static bool find_all(void* library, Functions& to) {
    return find(library, "nvmlInit_v2", to.init) && find(library, "nvmlShutdown", to.shut_down) &&
           find(library, "nvmlErrorString", to.error_words) &&
           find(library, "nvmlDeviceGetHandleByPciBusId_v2", to.find_device) &&
           find(library, "nvmlDeviceGetMemoryInfo", to.memory) &&
           find(library, "nvmlDeviceGetTemperature", to.temperature) &&
           find(library, "nvmlDeviceGetPowerUsage", to.power) &&
           find(library, "nvmlDeviceGetUtilizationRates", to.utilization);
  }
};

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shut_down(); }

Result<std::unique_ptr<Nvml>> Nvml::open(const std::string& library) {
  Result<Functions> functions = open_library<Functions>("NVML", {library}, Functions::find_all);
  if (!functions) return functions.error();
  if (const int result = functions->init(); result != kNvmlSuccess)
    return Error{ErrorCode::kNotFound,
                 std::string("NVML does not start: ") + functions->error_words(result)};
  return std::unique_ptr<Nvml>(new Nvml(std::make_unique<Functions>(*functions)));
}

GpuReading Nvml::read(const std::string& bus_id) const {
  GpuReading reading;
  NvmlDevice device = nullptr;
  if (functions_->find_device(bus_id.c_str(), &device) != kNvmlSuccess) return reading;
  if (NvmlMemory memory; functions_->memory(device, &memory) == kNvmlSuccess) {
    reading.used_bytes = static_cast<double>(memory.used);
    reading.total_bytes = static_cast<double>(memory.total);
  }
  unsigned int value = 0;
  if (functions_->temperature(device, kNvmlTemperatureGpu, &value) == kNvmlSuccess)
    reading.celsius = value;
  if (functions_->power(device, &value) == kNvmlSuccess) reading.watts = value * 1e-3;
  if (NvmlUtilization busy; functions_->utilization(device, &busy) == kNvmlSuccess)
    reading.busy_ratio = busy.gpu * 1e-2;
  return reading;
}

}  // namespace fathom::metrics
