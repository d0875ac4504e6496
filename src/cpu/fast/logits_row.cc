#include "cpu/fast/logits_row.h"

#include <algorithm>

namespace fathom::cpu::fast {
namespace {

// Logits looked through at once for the best ones.
constexpr int64_t kTopBlock = 256;

}  // namespace

Range range_of(const float* values, int64_t num, const KernelTable& kernels) {
  Range range;
  int64_t best = 0;
  for (int64_t begin = 0; begin < num; begin += kSampleBlock) {
    float min = 0, max = 0;
    range.good &=
        kernels.range_row(values + begin, std::min(kSampleBlock, num - begin), &min, &max);
    range.min = std::min(range.min, min);
    if (!(max > range.max)) continue;
    range.max = max;
    best = begin;
  }
  range.first_max = std::find(values + best, values + num, range.max) - values;
  return range;
}

float log_sum_exp(const float* logits, int64_t num, float max, const KernelTable& kernels) {
  double total = 0;
  for (int64_t begin = 0; begin < num; begin += kSampleBlock)
    total += static_cast<double>(
        kernels.sum_exp_row(logits + begin, max, 1.0f, std::min(kSampleBlock, num - begin)));
  return max + static_cast<float>(std::log(total));
}

void add_all(TopTokens& top, const float* logits, int64_t num, const KernelTable& kernels) {
  for (int64_t begin = 0; begin < num; begin += kTopBlock) {
    const int64_t end = std::min(begin + kTopBlock, num);
    float min = 0, max = 0;
    kernels.range_row(logits + begin, end - begin, &min, &max);
    if (top.would_take(max)) top.add(begin, end);
  }
}

}  // namespace fathom::cpu::fast
