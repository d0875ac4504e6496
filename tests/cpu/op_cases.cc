#include "tests/cpu/op_cases.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "base/rng.h"
#include "ops/head_linear.h"
#include "ops/linear.h"
#include "ops/mla.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "ops/silu_mul.h"

namespace fathom::cpu_test {

namespace {

using tensor::DType, tensor::Tensor;

// A tensor with its memory; copies share it.
struct Values {
  std::shared_ptr<std::vector<char>> bytes;
  Tensor view;
};

Values zeros(DType dtype, std::initializer_list<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  Values v;
  v.bytes = std::make_shared<std::vector<char>>(
      static_cast<size_t>(elements * tensor::dtype_bytes(dtype)) + 1);
  v.view = Tensor::contiguous(v.bytes->data(), dtype, shape);
  return v;
}

class Random {
 public:
  explicit Random(const std::string& name) : seed_(std::hash<std::string>()(name)) {}
  // Uniform in [-1, 1).
  float next() { return 2 * uniform(philox(seed_, 0, counter_++)[0]) - 1; }
  int64_t below(int64_t n) {
    return std::min(n - 1, static_cast<int64_t>((next() + 1) / 2 * static_cast<float>(n)));
  }
  Values fill(DType dtype, std::initializer_list<int64_t> shape, float scale = 1.0f) {
    Values v = zeros(dtype, shape);
    for (int64_t i = 0; i < v.view.num_elements(); ++i) {
      const float x = next() * scale;
      if (dtype == DType::kF32) v.view.as<float>()[i] = x;
      if (dtype == DType::kBf16) v.view.as<tensor::Bf16>()[i] = tensor::from_float<tensor::Bf16>(x);
      if (dtype == DType::kF8E4M3)
        v.view.as<tensor::F8E4M3>()[i] = tensor::from_float<tensor::F8E4M3>(x);
    }
    return v;
  }

 private:
  uint64_t seed_, counter_ = 0;
};

Values ints(const std::vector<int32_t>& values) {
  Values v = zeros(DType::kI32, {static_cast<int64_t>(values.size())});
  std::memcpy(v.view.data(), values.data(), values.size() * sizeof(int32_t));
  return v;
}

std::vector<float> floats(const Tensor& view) {
  return {view.as<float>(), view.as<float>() + view.num_elements()};
}

int64_t blocks(int64_t dim) { return (dim + 127) / 128; }

// Weights of a stack of matrices [a, b, out, in]; f8 values are large so that scales matter.
struct WeightValues {
  Values data, scale;
  ops::Weight view() const { return {data.view, scale.view}; }
};

OpCase linear_case(DType dtype, int64_t tokens, int64_t in, int64_t out) {
  const std::string name = "linear_" + std::string(tensor::dtype_name(dtype)) + "_" +
                           std::to_string(in) + "_" + std::to_string(out);
  Random random(name);
  const bool f8 = dtype == DType::kF8E4M3;
  const Values x = random.fill(DType::kF32, {tokens, in});
  WeightValues w{random.fill(dtype, {out, in}, f8 ? 400.0f : 1.0f), {}};
  if (f8) w.scale = random.fill(DType::kF32, {blocks(out), blocks(in)}, 0.003f);
  return {name, tokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const Values y = zeros(DType::kF32, {end - begin, out});
            ops::linear({.x = x.view.slice(0, begin, end), .weight = w.view(), .out = y.view},
                        stream);
            return floats(y.view);
          }};
}

OpCase head_linear_case(DType dtype) {
  const std::string name = "head_linear_" + std::string(tensor::dtype_name(dtype));
  constexpr int64_t kTokens = 101, kNumHeads = 5, kIn = 72, kOut = 130;
  Random random(name);
  const Values x = random.fill(DType::kF32, {kTokens, kNumHeads, kIn});
  const bool f8 = dtype == DType::kF8E4M3;
  WeightValues w{random.fill(dtype, {kNumHeads, kOut, kIn}, f8 ? 400.0f : 1.0f), {}};
  if (f8) w.scale = random.fill(DType::kF32, {kNumHeads, blocks(kOut), blocks(kIn)}, 0.003f);
  return {name, kTokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const Values y = zeros(DType::kF32, {end - begin, kNumHeads, kOut});
            ops::head_linear({.x = x.view.slice(0, begin, end), .weight = w.view(), .out = y.view},
                             stream);
            return floats(y.view);
          }};
}

OpCase rms_norm_case() {
  Random random("rms_norm");
  constexpr int64_t kTokens = 67, kDim = 1037;
  const Values x = random.fill(DType::kF32, {kTokens, kDim});
  const Values w = random.fill(DType::kBf16, {kDim});
  return {"rms_norm", kTokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const Values y = zeros(DType::kF32, {end - begin, kDim});
            ops::rms_norm(
                {.x = x.view.slice(0, begin, end), .weight = w.view, .residual = {}, .out = y.view},
                stream);
            return floats(y.view);
          }};
}

OpCase silu_mul_case() {
  Random random("silu_mul");
  constexpr int64_t kTokens = 13, kInter = 4999;
  const Values x = random.fill(DType::kF32, {kTokens, 2, kInter}, 30.0f);
  return {"silu_mul", kTokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const Values y = zeros(DType::kF32, {end - begin, kInter});
            ops::silu_mul({.gate_up = x.view.slice(0, begin, end), .out = y.view}, stream);
            return floats(y.view);
          }};
}

OpCase moe_gate_case(ops::GateKind kind, const std::string& name) {
  Random random(name);
  constexpr int64_t kTokens = 103, kDim = 250, kExperts = 32, kPerToken = 6;
  const Values x = random.fill(DType::kF32, {kTokens, kDim});
  const Values w = random.fill(DType::kBf16, {kExperts, kDim}, 0.2f);
  const Values bias = random.fill(DType::kF32, {kExperts}, 0.1f);
  return {name, kTokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const Values ids = zeros(DType::kI32, {end - begin, kPerToken});
            const Values weights = zeros(DType::kF32, {end - begin, kPerToken});
            ops::moe_gate({.x = x.view.slice(0, begin, end),
                           .weight = w.view,
                           .bias = kind == ops::GateKind::kSigmoidNoAux ? bias.view : Tensor(),
                           .kv_rows = {},
                           .kind = kind,
                           .n_group = 8,
                           .topk_group = 3,
                           .norm_topk_prob = true,
                           .routed_scaling_factor = 2.5f,
                           .ids = ids.view,
                           .weights = weights.view},
                          stream);
            std::vector<float> out = floats(weights.view);
            for (int64_t i = 0; i < ids.view.num_elements(); ++i)
              out.push_back(static_cast<float>(ids.view.as<int32_t>()[i]));
            // Row by row, so that ranges of tokens can be put together.
            std::vector<float> rows;
            for (int64_t t = 0; t < end - begin; ++t)
              for (const int64_t at : {t * kPerToken, (end - begin + t) * kPerToken})
                rows.insert(rows.end(), out.begin() + at, out.begin() + at + kPerToken);
            return rows;
          }};
}

OpCase moe_experts_case(DType dtype) {
  const std::string name = "moe_experts_" + std::string(tensor::dtype_name(dtype));
  constexpr int64_t kTokens = 150, kHidden = 200, kInter = 168, kExperts = 9, kPerToken = 4;
  Random random(name);
  const bool f8 = dtype == DType::kF8E4M3;
  const Values x = random.fill(DType::kF32, {kTokens, kHidden});
  WeightValues up{random.fill(dtype, {kExperts, 2, kInter, kHidden}, f8 ? 400.0f : 0.3f), {}};
  WeightValues down{random.fill(dtype, {kExperts, kHidden, kInter}, f8 ? 400.0f : 0.3f), {}};
  if (f8) {
    up.scale = random.fill(DType::kF32, {kExperts, 2, blocks(kInter), blocks(kHidden)}, 0.001f);
    down.scale = random.fill(DType::kF32, {kExperts, blocks(kHidden), blocks(kInter)}, 0.001f);
  }
  // Expert 0 gets most tokens, expert 8 none; some places are padding.
  const Values ids = zeros(DType::kI32, {kTokens, kPerToken});
  for (int64_t t = 0; t < kTokens; ++t) {
    int32_t* const row = ids.view.row<int32_t>(t);
    row[0] = 0;
    for (int64_t j = 1; j < kPerToken; ++j)
      row[j] = random.below(10) == 0 ? -1 : static_cast<int32_t>((t + j * 2) % (kExperts - 1));
  }
  const Values weights = random.fill(DType::kF32, {kTokens, kPerToken});
  const Values before = random.fill(DType::kF32, {kTokens, kHidden});
  return {name, kTokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const Values y = zeros(DType::kF32, {end - begin, kHidden});
            std::memcpy(y.view.data(), before.view.row<float>(begin),
                        static_cast<size_t>(y.view.num_bytes()));
            ops::moe_experts({.x = x.view.slice(0, begin, end),
                              .ids = ids.view.slice(0, begin, end),
                              .weights = weights.view.slice(0, begin, end),
                              .gate_up = up.view(),
                              .down = down.view(),
                              .accumulate = true,
                              .out = y.view},
                             stream);
            return floats(y.view);
          }};
}

constexpr int64_t kRank = 144, kRope = 24, kBlockTokens = 48;

// Cache and block table of one sequence of `rows` rows in shuffled blocks.
struct CacheValues {
  Values rows, table;
  ops::KvFormat format;
};
CacheValues random_cache(Random& random, DType dtype, int64_t rows) {
  const int64_t num = (rows + kBlockTokens - 1) / kBlockTokens;
  const ops::KvFormat format = ops::KvFormat::of(dtype, kRank, kRope);
  CacheValues c{zeros(DType::kU8, {num, kBlockTokens, format.row_bytes}),
                zeros(DType::kI32, {1, num}), format};
  const float scale = 0x1p-10f;
  for (int64_t row = 0; row < num * kBlockTokens; ++row) {
    char* const to = c.rows.bytes->data() + row * format.row_bytes;
    const Values latent =
        random.fill(format.latent, {kRank}, dtype == DType::kF8E4M3 ? 0.5f / scale : 0.5f);
    const Values rope = random.fill(format.rope, {kRope}, 0.5f);
    std::memcpy(to, latent.view.data(), static_cast<size_t>(latent.view.num_bytes()));
    for (int64_t i = 0; i < format.num_scales; ++i)
      std::memcpy(to + format.scale_offset + i * 4, &scale, sizeof(scale));
    std::memcpy(to + format.rope_offset, rope.view.data(),
                static_cast<size_t>(rope.view.num_bytes()));
  }
  for (int64_t i = 0; i < num; ++i)
    c.table.view.as<int32_t>()[i] = static_cast<int32_t>((i * 5 + 3) % num);
  return c;
}

// Token t is the query at row first_row + t of one sequence; a range of tokens is one step that holds them.
OpCase mla_absorbed_case(DType dtype, int64_t first_row) {
  const std::string name =
      "mla_absorbed_" + std::string(tensor::dtype_name(dtype)) + "_" + std::to_string(first_row);
  constexpr int64_t kTokens = 31, kNumHeads = 19;
  Random random(name);
  const Values q = random.fill(DType::kF32, {kTokens, kNumHeads, kRank}, 2.0f);
  const Values q_rope = random.fill(DType::kF32, {kTokens, kNumHeads, kRope}, 2.0f);
  // For the shuffle the number of blocks must not be a multiple of 5.
  const CacheValues c = random_cache(random, dtype, first_row + kTokens);
  return {name, kTokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const Values y = zeros(DType::kF32, {end - begin, kNumHeads, kRank});
            ops::mla_absorbed({.q_latent = q.view.slice(0, begin, end),
                               .q_rope = q_rope.view.slice(0, begin, end),
                               .cache = {.rows = c.rows.view, .format = c.format},
                               .query_start = ints({0, static_cast<int32_t>(end - begin)}).view,
                               .kv_len = ints({static_cast<int32_t>(first_row + end)}).view,
                               .block_tables = c.table.view,
                               .tree_mask = {},
                               .plan = {},
                               .scale = 0.3f,
                               .out = y.view},
                              stream);
            return floats(y.view);
          }};
}

// Token t is query t of a prompt; a range of tokens is one prefill chunk that starts at row `begin`.
OpCase mla_expanded_case() {
  constexpr int64_t kTokens = 333, kNumHeads = 3, kNope = 40, kValue = 56, kChunk = 128;
  Random random("mla_expanded");
  const Values q = random.fill(DType::kF32, {kTokens, kNumHeads, kNope + kRope}, 2.0f);
  const Values kv = random.fill(DType::kF32, {kTokens, kNumHeads, kNope + kValue});
  const Values k_rope = random.fill(DType::kF32, {kTokens, kRope});
  return {"mla_expanded", kTokens, [=](ops::Stream& stream, int64_t begin, int64_t end) {
            const int64_t queries = end - begin;
            const Values max = zeros(DType::kF32, {queries, kNumHeads});
            const Values sum = zeros(DType::kF32, {queries, kNumHeads});
            const Values acc = zeros(DType::kF32, {queries, kNumHeads, kValue});
            const Values y = zeros(DType::kF32, {queries, kNumHeads, kValue});
            for (int64_t key = 0; key < end; key += kChunk) {
              const int64_t key_end = std::min(key + kChunk, end);
              const ops::ExpandedSegment segment{.row_begin = key,
                                                 .num_rows = key_end - key,
                                                 .num_tokens = queries,
                                                 .query_begin = begin,
                                                 .first = key == 0,
                                                 .last = key_end == end};
              ops::mla_expanded({.q = q.view.slice(0, begin, end),
                                 .kv = kv.view.slice(0, key, key_end),
                                 .k_rope = k_rope.view.slice(0, key, key_end),
                                 .segments = {&segment, 1},
                                 .tree_mask = {},
                                 .scale = 0.3f,
                                 .state_max = max.view,
                                 .state_sum = sum.view,
                                 .state_acc = acc.view,
                                 .out = y.view},
                                stream);
            }
            return floats(y.view);
          }};
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    cases.push_back(linear_case(dtype, 131, 700, 205));
    cases.push_back(linear_case(dtype, 200, 37, 1100));
    cases.push_back(head_linear_case(dtype));
    cases.push_back(moe_experts_case(dtype));
  }
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    cases.push_back(mla_absorbed_case(dtype, 741));
  }
  cases.push_back(mla_absorbed_case(DType::kF8E4M3, 741));
  // The chunks grow at row 8192.
  cases.push_back(mla_absorbed_case(DType::kBf16, 8180));
  cases.push_back(mla_expanded_case());
  cases.push_back(rms_norm_case());
  cases.push_back(silu_mul_case());
  cases.push_back(moe_gate_case(ops::GateKind::kSoftmaxGreedy, "moe_gate_greedy"));
  cases.push_back(moe_gate_case(ops::GateKind::kSoftmaxGroups, "moe_gate_groups"));
  cases.push_back(moe_gate_case(ops::GateKind::kSigmoidNoAux, "moe_gate_sigmoid"));
  return cases;
}

}  // namespace fathom::cpu_test
