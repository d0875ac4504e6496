#include "cuda/rank_devices.h"

namespace fathom::cuda {

std::string why_not_ranks(const std::vector<Gpu>& gpus, int count) {
  const auto have = static_cast<int>(gpus.size());
  if (have < count)
    return std::to_string(count) + " ranks need as many GPUs, and " +
           (have == 1 ? "one is" : std::to_string(have) + " are") +
           " visible (CUDA_VISIBLE_DEVICES may hide others)";
  for (int i = 0; i < count; ++i) {
    const Gpu& gpu = gpus[static_cast<size_t>(i)];
    const std::string number = "GPU " + std::to_string(i);
    if (gpu.name != gpus[0].name || gpu.total_bytes != gpus[0].total_bytes)
      return "the ranks of a model are GPUs of one kind, and " + number + " is " + gpu.name +
             " of " + std::to_string(gpu.total_bytes >> 30) + " GiB where GPU 0 is " +
             gpus[0].name + " of " + std::to_string(gpus[0].total_bytes >> 30) + " GiB";
    if (gpu.free_bytes < 0) return number + ", " + gpu.name + ", cannot be opened";
  }
  return "";
}

}  // namespace fathom::cuda
