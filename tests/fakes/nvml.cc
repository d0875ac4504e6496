// A driver's NVML with two GPUs. The second tells its memory alone, as one in parts (MIG) does; each reading of the
// first one's temperature is a degree more.

#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6;
int g_places[2];

int first_only(void* device) { return device == &g_places[0] ? kSuccess : kNotSupported; }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return std::getenv("FATHOM_FAKE_NVML_FAILS") == nullptr ? kSuccess : kNotFound;
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "the driver is not loaded"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  for (int i = 0; i < 2; ++i)
    if (std::strcmp(bus_id, i == 0 ? "00000000:3B:00.0" : "00000000:5E:00.0") == 0) {
      *device = &g_places[i];
      return kSuccess;
    }
  return kNotFound;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  total_free_used[0] = 150'000'000'000;
  total_free_used[2] = device == &g_places[0] ? 138'000'000'000 : 1'000'000;
  total_free_used[1] = total_free_used[0] - total_free_used[2];
  return kSuccess;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* celsius) {
  static unsigned int degrees = 40;
  if (sensor != 0) return kNotSupported;
  *celsius = ++degrees;
  return first_only(device);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  *milliwatts = 412'500;
  return first_only(device);
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned int* gpu_and_memory) {
  gpu_and_memory[0] = 97;
  gpu_and_memory[1] = 31;
  return first_only(device);
}

}  // extern "C"
