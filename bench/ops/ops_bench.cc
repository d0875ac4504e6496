// Times the operators of the fast CPU backend on shapes of the published models and prints one JSON line
// per case: what was run, microseconds, and the share of the bound (read bandwidth or multiply-adds) that
// was measured in the same run.
//
//   bench_ops [substring of op] [threads]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "bench/ops/fma_peak.h"
#include "cpu/fast/bandwidth.h"
#include "cpu/fast/cpu_topology.h"
#include "cpu/fast/fast_backend.h"
#include "ops/head_linear.h"
#include "ops/linear.h"
#include "ops/mla.h"
#include "ops/moe.h"
#include "ops/sample.h"

namespace fathom::bench {
namespace {

using tensor::DType, tensor::Tensor;

// Inputs rotate over this much memory, so that weights come from memory and not from a cache.
constexpr int64_t kRotationBytes = int64_t{600} << 20;

struct Case {
  std::string op, shape;
  double bytes = 0, flops = 0;
  int num_copies = 1;
  std::function<void(int copy)> run;
};

class Memory {
 public:
  explicit Memory(const ops::Backend& backend) : backend_(backend) {}
  ~Memory() { clear(); }
  void clear() {
    for (void* data : blocks_) backend_.deallocate(data);
    blocks_.clear();
  }
  // Small values that are valid in every dtype.
  Tensor tensor(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t bytes = tensor::dtype_bytes(dtype);
    for (const int64_t dim : shape) bytes *= dim;
    auto* data = static_cast<unsigned char*>(backend_.allocate(bytes));
    if (data == nullptr) {
      std::fprintf(stderr, "no memory for %lld bytes\n", static_cast<long long>(bytes));
      std::exit(1);
    }
    blocks_.push_back(data);
    if (dtype == DType::kF32)
      std::generate_n(reinterpret_cast<float*>(data), bytes / 4, [this] { return next(); });
    if (dtype == DType::kBf16)
      std::generate_n(reinterpret_cast<tensor::Bf16*>(data), bytes / 2,
                      [this] { return tensor::from_float<tensor::Bf16>(next()); });
    if (dtype == DType::kF8E4M3)
      std::generate_n(data, bytes,
                      [this] { return static_cast<unsigned char>(state_bits() % 120); });
    return Tensor::contiguous(data, dtype, shape);
  }
  Tensor ints(const std::vector<int32_t>& values) {
    Tensor t = tensor(DType::kI32, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t.as<int32_t>());
    return t;
  }

 private:
  uint32_t state_bits() { return state_ = state_ * 1664525u + 1013904223u, state_ >> 8; }
  float next() { return static_cast<float>(state_bits()) * 0x1p-23f - 1.0f; }
  const ops::Backend& backend_;
  uint32_t state_ = 1;
  std::vector<void*> blocks_;
};

int64_t blocks(int64_t dim) { return (dim + 127) / 128; }

class OpsBench {
 public:
  OpsBench(const std::string& filter, int threads)
      : filter_(filter),
        threads_(threads == 0 ? cpu::num_physical_cores() : threads),
        stream_(cpu::fast_backend().make_stream({.num_threads = threads_})),
        memory_(cpu::fast_backend()),
        read_gb_s_(cpu::measure_read_bandwidth_gb_s(threads_)),
        peak_gflop_s_(fma_peak_gflop_s() * threads_) {
    std::printf(
        "{\"machine\": \"%s\", \"threads\": %d, \"read_gb_s\": %.1f, \"fma_gflop_s\": %.0f}\n",
        std::string(cpu::fast_backend().device).c_str(), threads_, read_gb_s_, peak_gflop_s_);
  }

  void run_all() {
    for (const int64_t tokens : {1, 4, 8, 64, 512}) {
      linear("q_proj", DType::kBf16, tokens, 3072, 2048);
      linear("kv_a", DType::kBf16, tokens, 576, 2048);
      linear("o_proj", DType::kBf16, tokens, 2048, 2048);
      linear("kv_a_f8", DType::kF8E4M3, tokens, 576, 2048);
      linear("dense_up", DType::kBf16, tokens, 21888, 2048);
      linear("dense_up_f8", DType::kF8E4M3, tokens, 21888, 2048);
      linear("o_proj_v3_f8", DType::kF8E4M3, tokens, 7168, 16384);
      linear("lm_head", DType::kBf16, tokens, 102400, 2048);
      linear("o_proj_f32", DType::kF32, tokens, 2048, 2048);
      head_linear("w_uk", DType::kBf16, tokens);
      head_linear("w_uk_f8", DType::kF8E4M3, tokens);
      moe("moe_v2_lite", DType::kBf16, tokens);
      moe("moe_v2_lite_f8", DType::kF8E4M3, tokens);
    }
    for (const int64_t batch : {1, 64})
      for (const int64_t kv_len : {256, 4096})
        for (const DType dtype : {DType::kF32, DType::kBf16}) absorbed(dtype, batch, 16, kv_len);
    for (const int64_t tokens : {64, 512, 2048}) expanded(tokens);
    sampling();
    tiny_linear();
    gemm_tile();
  }

 private:
  bool wanted(const std::string& op) const { return op.find(filter_) != std::string::npos; }
  static int copies(double bytes) {
    return std::clamp(static_cast<int>(static_cast<double>(kRotationBytes) / bytes), 1, 64);
  }

  void report(const Case& c) {
    std::vector<double> us;
    for (int i = 0; i < c.num_copies; ++i) c.run(i);
    const Stopwatch total;
    for (int i = 0; us.size() < 5 || total.seconds() < 0.4; ++i) {
      const Stopwatch watch;
      c.run(i % c.num_copies);
      us.push_back(watch.seconds() * 1e6);
    }
    std::sort(us.begin(), us.end());
    const double p50 = us[us.size() / 2], best = us[0];
    // The bound that takes longer is the one that counts.
    const double floor_us = std::max(c.bytes / read_gb_s_ * 1e-3, c.flops / peak_gflop_s_ * 1e-3);
    std::printf(
        "{\"op\": \"%s\", \"shape\": \"%s\", \"us_p50\": %.1f, \"us_p90\": %.1f, \"us_min\": %.1f, "
        "\"gb_s\": %.1f, \"gflop_s\": %.0f, \"percent_of_bound\": %.0f, "
        "\"percent_of_bound_best\": %.0f}\n",
        c.op.c_str(), c.shape.c_str(), p50, us[us.size() * 9 / 10], best, c.bytes / p50 * 1e-3,
        c.flops / p50 * 1e-3, 100 * floor_us / p50, 100 * floor_us / best);
    std::fflush(stdout);
    memory_.clear();
  }

  ops::Weight weight(DType dtype, std::initializer_list<int64_t> shape,
                     std::initializer_list<int64_t> scale_shape) {
    ops::Weight w{memory_.tensor(dtype, shape), {}};
    if (dtype == DType::kF8E4M3) w.scale = memory_.tensor(DType::kF32, scale_shape);
    return w;
  }

  void linear(const std::string& op, DType dtype, int64_t tokens, int64_t out, int64_t in) {
    if (!wanted(op)) return;
    const double bytes = static_cast<double>(out * in * tensor::dtype_bytes(dtype));
    std::vector<ops::Weight> weights;
    for (int i = 0; i < copies(bytes); ++i)
      weights.push_back(weight(dtype, {out, in}, {blocks(out), blocks(in)}));
    const Tensor x = memory_.tensor(DType::kF32, {tokens, in});
    const Tensor y = memory_.tensor(DType::kF32, {tokens, out});
    report({op, std::to_string(tokens) + "x" + std::to_string(out) + "x" + std::to_string(in),
            bytes, 2.0 * static_cast<double>(tokens * out * in), static_cast<int>(weights.size()),
            [&](int i) {
              ops::linear({.x = x, .weight = weights[static_cast<size_t>(i)], .out = y}, *stream_);
            }});
  }

  // A layer of the demo model: what a call costs when there is next to nothing to do.
  void tiny_linear() {
    linear("demo_kv_a", DType::kBf16, 1, 576, 128);
    linear("demo_up_f8", DType::kF8E4M3, 1, 1024, 128);
  }

  // Small enough to run undisturbed on a busy machine: how close one tile gets to the FMA units.
  void gemm_tile() {
    linear("gemm_f32", DType::kF32, 96, 256, 2048);
    linear("gemm_bf16", DType::kBf16, 96, 256, 2048);
    linear("gemm_f8", DType::kF8E4M3, 96, 256, 2048);
  }

  void head_linear(const std::string& op, DType dtype, int64_t tokens) {
    if (!wanted(op)) return;
    const int64_t heads = 16, out = 512, in = 128;
    const double bytes = static_cast<double>(heads * out * in * tensor::dtype_bytes(dtype));
    std::vector<ops::Weight> weights;
    for (int i = 0; i < copies(bytes); ++i)
      weights.push_back(weight(dtype, {heads, out, in}, {heads, blocks(out), blocks(in)}));
    const Tensor x = memory_.tensor(DType::kF32, {tokens, heads, in});
    const Tensor y = memory_.tensor(DType::kF32, {tokens, heads, out});
    report({op, std::to_string(tokens) + "x16x512x128", bytes,
            2.0 * static_cast<double>(tokens * heads * out * in), static_cast<int>(weights.size()),
            [&](int i) {
              ops::head_linear({.x = x, .weight = weights[static_cast<size_t>(i)], .out = y},
                               *stream_);
            }});
  }

  void moe(const std::string& op, DType dtype, int64_t tokens) {
    if (!wanted(op)) return;
    const int64_t experts = 64, per_token = 6, inter = 1408, hidden = 2048;
    const ops::Weight up =
        weight(dtype, {experts, 2, inter, hidden}, {experts, 2, blocks(inter), blocks(hidden)});
    const ops::Weight down =
        weight(dtype, {experts, hidden, inter}, {experts, blocks(hidden), blocks(inter)});
    const Tensor x = memory_.tensor(DType::kF32, {tokens, hidden});
    const Tensor weights = memory_.tensor(DType::kF32, {tokens, per_token});
    const Tensor y = memory_.tensor(DType::kF32, {tokens, hidden});
    const int num_routings = tokens == 1 ? 10 : 3;
    std::vector<Tensor> ids;
    std::vector<bool> used(static_cast<size_t>(experts));
    for (int r = 0; r < num_routings; ++r) {
      const Tensor id = memory_.tensor(DType::kI32, {tokens, per_token});
      for (int64_t i = 0; i < tokens * per_token; ++i) {
        const int64_t t = i / per_token, j = i % per_token;
        id.as<int32_t>()[i] = static_cast<int32_t>((t * 7 + t / 9 + j * 11 + r * 6) % experts);
        if (r == 0) used[static_cast<size_t>(id.as<int32_t>()[i])] = true;
      }
      ids.push_back(id);
    }
    const auto active = static_cast<double>(std::count(used.begin(), used.end(), true));
    const double per_expert = 3.0 * static_cast<double>(inter * hidden);
    report({op,
            std::to_string(tokens) + " tokens, " + std::to_string(static_cast<int>(active)) +
                " experts",
            active * per_expert * static_cast<double>(tensor::dtype_bytes(dtype)),
            2.0 * per_expert * static_cast<double>(tokens * per_token), num_routings, [&](int i) {
              ops::moe_experts({.x = x,
                                .ids = ids[static_cast<size_t>(i)],
                                .weights = weights,
                                .gate_up = up,
                                .down = down,
                                .out = y},
                               *stream_);
            }});
  }

  void absorbed(DType dtype, int64_t batch, int64_t heads, int64_t kv_len) {
    if (!wanted("mla_absorbed")) return;
    const int64_t rank = 512, rope = 64, block_tokens = 64, per_seq = kv_len / block_tokens;
    const ops::KvFormat format = ops::KvFormat::of(dtype, rank, rope);
    const Tensor values = memory_.tensor(dtype, {batch * per_seq, block_tokens, rank + rope});
    const Tensor cache = Tensor::contiguous(values.data(), DType::kU8,
                                            {batch * per_seq, block_tokens, format.row_bytes});
    const Tensor q = memory_.tensor(DType::kF32, {batch, heads, rank});
    const Tensor q_rope = memory_.tensor(DType::kF32, {batch, heads, rope});
    const Tensor out = memory_.tensor(DType::kF32, {batch, heads, rank});
    std::vector<int32_t> starts, lens(static_cast<size_t>(batch), static_cast<int32_t>(kv_len)),
        table;
    for (int32_t i = 0; i <= batch; ++i) starts.push_back(i);
    for (int32_t i = 0; i < batch * per_seq; ++i) table.push_back(i);
    const Tensor start = memory_.ints(starts), len = memory_.ints(lens);
    const Tensor tables = memory_.ints(table).reshape({batch, per_seq});
    report({"mla_absorbed",
            std::to_string(batch) + "x16 heads, " + std::to_string(kv_len) + " rows " +
                std::string(tensor::dtype_name(dtype)),
            static_cast<double>(cache.num_bytes()),
            2.0 * static_cast<double>(batch * heads * kv_len * (2 * rank + rope)), 1, [&](int) {
              ops::mla_absorbed({.q_latent = q,
                                 .q_rope = q_rope,
                                 .cache = {.rows = cache, .format = format},
                                 .query_start = start,
                                 .kv_len = len,
                                 .block_tables = tables,
                                 .tree_mask = {},
                                 .plan = {},
                                 .scale = 0.07f,
                                 .out = out},
                                *stream_);
            }});
  }

  void expanded(int64_t tokens) {
    if (!wanted("mla_expanded")) return;
    const int64_t heads = 16, nope = 128, rope = 64, value = 128;
    const Tensor q = memory_.tensor(DType::kF32, {tokens, heads, nope + rope});
    const Tensor kv = memory_.tensor(DType::kF32, {tokens, heads, nope + value});
    const Tensor k_rope = memory_.tensor(DType::kF32, {tokens, rope});
    const Tensor max = memory_.tensor(DType::kF32, {tokens, heads});
    const Tensor sum = memory_.tensor(DType::kF32, {tokens, heads});
    const Tensor acc = memory_.tensor(DType::kF32, {tokens, heads, value});
    const Tensor out = memory_.tensor(DType::kF32, {tokens, heads, value});
    const ops::ExpandedSegment segment{
        .num_rows = tokens, .num_tokens = tokens, .first = true, .last = true};
    report({"mla_expanded", std::to_string(tokens) + "x16 heads, causal",
            static_cast<double>(kv.num_bytes()),
            static_cast<double>(tokens * tokens * heads * (nope + rope + value)), 1, [&](int) {
              ops::mla_expanded({.q = q,
                                 .kv = kv,
                                 .k_rope = k_rope,
                                 .segments = {&segment, 1},
                                 .tree_mask = {},
                                 .scale = 0.07f,
                                 .state_max = max,
                                 .state_sum = sum,
                                 .state_acc = acc,
                                 .out = out},
                                *stream_);
            }});
  }

  struct SampleCase {
    std::string name;
    float temperature = 1, top_p = 1;
    int32_t top_k = 0;
  };

  void sampling() {
    const SampleCase cases[] = {{.name = "greedy", .temperature = 0},
                                {.name = "unrestricted"},
                                {.name = "top_k 50", .top_k = 50},
                                {.name = "top_p 0.9", .top_p = 0.9f},
                                {.name = "top_k 50 top_p 0.9", .top_p = 0.9f, .top_k = 50}};
    for (const int64_t rows : {1, 32})
      for (const bool flat : {false, true})
        for (const SampleCase& c : cases) sample(rows, 129280, c, flat);
  }

  // Logits as language models give them: most far below a few.
  Tensor steep_logits(int64_t rows, int64_t vocab_size) {
    const Tensor logits = memory_.tensor(DType::kF32, {rows, vocab_size});
    float* const values = logits.as<float>();
    for (int64_t i = 0; i < logits.num_elements(); ++i)
      values[i] = 14.0f * values[i] * values[i] * values[i] * values[i] - 4.0f * values[i];
    return logits;
  }

  void sample(int64_t rows, int64_t vocab_size, const SampleCase& c, bool flat) {
    if (!wanted("sample")) return;
    const auto filled = [&](float value) {
      const Tensor t = memory_.tensor(DType::kF32, {rows});
      std::fill_n(t.as<float>(), rows, value);
      return t;
    };
    const auto filled_ints = [&](int32_t value) {
      return memory_.ints(std::vector<int32_t>(static_cast<size_t>(rows), value));
    };
    const Tensor logits =
        flat ? memory_.tensor(DType::kF32, {rows, vocab_size}) : steep_logits(rows, vocab_size);
    const Tensor seed = memory_.tensor(DType::kU64, {rows}),
                 failed = memory_.tensor(DType::kU8, {rows});
    std::fill_n(seed.as<uint64_t>(), rows, 7);
    ops::SampleArgs args{.slots = {.temperature = filled(c.temperature),
                                   .top_k = filled_ints(c.top_k),
                                   .top_p = filled(c.top_p),
                                   .min_p = filled(0.0f),
                                   .repetition = filled(1.0f),
                                   .frequency = filled(0.0f),
                                   .presence = filled(0.0f),
                                   .seed = seed,
                                   .num_top = filled_ints(0),
                                   .penalty_row = filled_ints(-1),
                                   .counts = {},
                                   .bias_start = filled_ints(0),
                                   .ban_start = filled_ints(0),
                                   .ban_end = filled_ints(0),
                                   .ban_until = filled_ints(0),
                                   .bias_ids = memory_.ints({0}).slice(0, 0, 0),
                                   .bias_values = filled(0.0f).slice(0, 0, 0)},
                         .logits = logits,
                         .slot = filled_ints(0),
                         .position = filled_ints(3),
                         .forced = filled_ints(-1),
                         .tokens = filled_ints(0),
                         .logprobs = filled(0.0f),
                         .top_ids = memory_.tensor(DType::kI32, {rows, 1}),
                         .top_logprobs = memory_.tensor(DType::kF32, {rows, 1}),
                         .failed = failed};
    report({"sample",
            std::to_string(rows) + "x" + std::to_string(vocab_size) + " " + c.name +
                (flat ? ", flat" : ", steep"),
            static_cast<double>(logits.num_bytes()), 0, 1,
            [&](int) { ops::sample(args, *stream_); }});
  }

  std::string filter_;
  int threads_;
  std::unique_ptr<ops::Stream> stream_;
  Memory memory_;
  double read_gb_s_, peak_gflop_s_;
};

}  // namespace
}  // namespace fathom::bench

int main(int argc, char** argv) {
  fathom::bench::OpsBench(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 0).run_all();
}
