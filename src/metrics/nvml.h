#pragma once
// What NVIDIA's driver tells of a GPU: NVML, the library behind nvidia-smi, opened at run time.
//
//   Result<std::unique_ptr<Nvml>> nvml = Nvml::open();
//   if (nvml) reading = (*nvml)->read("00000000:3B:00.0");
//
// Names, numbers and types of nvml.h are declared by ourselves in nvml.cc: its header is not needed to build.
// Thread-safe.

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"

namespace fathom::metrics {

// What a GPU does not tell is empty.
struct GpuReading {
  std::optional<double> used_bytes, total_bytes;  // of its memory, by all processes
  std::optional<double> celsius, watts;
  std::optional<double>
      busy_ratio;  // part of the last second or less in which a kernel ran, 0 to 1
};

class Nvml {
 public:
  // The error says what was tried, or in the library's words why it does not start.
  static Result<std::unique_ptr<Nvml>> open(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // By the GPU's PCI address, whatever CUDA_VISIBLE_DEVICES calls it. All is empty of one that it does not know.
  GpuReading read(const std::string& bus_id) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  std::unique_ptr<Functions> functions_;
};

}  // namespace fathom::metrics
