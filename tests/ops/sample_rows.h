#pragma once
// Runs ops::sample on rows told as ref::SamplerRow.
//
//   std::vector<SampleRow> rows(2);
//   rows[0].rules.logits = {...};
//   const std::vector<SampleOutcome> out = sample(rows);

#include <vector>

#include "tests/ops/device.h"
#include "tests/ref/sampler.h"

namespace fathom::ops_test {

struct SampleRow {
  ref::SamplerRow rules = {};
  uint64_t seed = 0;
  int32_t position = 0, num_top = 0, forced = -1;
  std::vector<int32_t> path = {};  // at most SampleTest::kMaxPath
  bool is_padding = false;         // of no slot
  bool is_past_bans = false;  // biases of -inf are the slot's, but hold at lower positions only
};

struct SampleOutcome {
  int32_t token = 0;
  float logprob = 0;
  uint8_t failed = 0;
  std::vector<int32_t> top_ids;
  std::vector<float> top_logprobs;
};

class SampleTest : public OpsTest {
 protected:
  static constexpr int64_t kMaxTop = 5, kMaxPath = 4;
  std::vector<SampleOutcome> sample(const std::vector<SampleRow>& rows);
  // The same on the reference backend.
  std::vector<SampleOutcome> sample_on_reference(const std::vector<SampleRow>& rows);
};

// Logits that float32 holds exactly.
std::vector<double> random_logits(ref::Random& random, int64_t vocab_size, double deviation);

}  // namespace fathom::ops_test
