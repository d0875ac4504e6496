// DeepSeek-V3.2 against Hugging Face transformers in float32 (tests/data/v32/make_golden.py): logits, tokens and what
// every layer's indexer selects, and that a mistake in the indexer would show in them.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cpu/fast/fast_stream.h"
#include "ops/index.h"
#include "tests/model/backends.h"
#include "tests/model/error_table.h"
#include "tests/model/step_harness.h"
#include "tests/model/v32_checkpoint.h"

namespace fathom::model {
namespace {

using tensor::DType;
using tensor::Tensor;
using Rows = std::vector<std::vector<float>>;

constexpr double kV32LogitError = 1e-3;

const V32Checkpoint& checkpoint() {
  static const V32Checkpoint files;
  return files;
}

struct V32Golden {
  int num_tokens = 0, first_selected = 0;
  std::vector<int32_t> greedy{}, argmax{};
  std::vector<float> logits{};
  std::vector<std::vector<std::set<int>>> selected{};  // of each layer, from first_selected on
  std::vector<std::set<int>> close{};                  // of each layer
};

std::set<int> bits_of(const std::string& hexadecimal) {
  std::set<int> bits;
  for (size_t i = 0; i < hexadecimal.size(); ++i) {
    const char digit = hexadecimal[hexadecimal.size() - 1 - i];
    const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
    for (int bit = 0; bit < 4; ++bit)
      if ((value >> bit & 1) != 0) bits.insert(static_cast<int>(4 * i) + bit);
  }
  return bits;
}

std::vector<V32Golden> golden_prompts() {
  std::vector<V32Golden> prompts;
  for (const json::Value& entry : v32_golden()["prompts"]) {
    V32Golden golden{.num_tokens = entry["num_tokens"].get<int>(),
                     .first_selected = entry["first_selected"].get<int>(),
                     .greedy = entry["greedy"].get<std::vector<int32_t>>(),
                     .logits = entry["logits"].get<std::vector<float>>()};
    if (!entry["argmax"].is_null()) golden.argmax = entry["argmax"].get<std::vector<int32_t>>();
    for (const json::Value& layer : entry["selected"]) {
      golden.selected.emplace_back();
      for (const json::Value& mask : layer)
        golden.selected.back().push_back(bits_of(mask.get<std::string>()));
    }
    for (const json::Value& layer : entry["close"]) {
      const auto list = layer.get<std::vector<int>>();
      golden.close.emplace_back(list.begin(), list.end());
    }
    prompts.push_back(std::move(golden));
  }
  return prompts;
}

// A backend whose operators a test replaces: a table of functions, and streams that go through it.
ops::Backend& changed_fast() {
  static ops::Backend table;
  return table;
}
ops::Backend& changed_reference() {
  static ops::Backend table;
  return table;
}

ops::Backend& changeable(const ops::Backend& backend) {
  const bool is_reference = &backend == &cpu::reference_backend();
  ops::Backend& table = is_reference ? changed_reference() : changed_fast();
  table = backend;
  if (is_reference) {
    table.make_stream = [](const ops::StreamConfig&) -> std::unique_ptr<ops::Stream> {
      return std::make_unique<cpu::CpuStream>(changed_reference());
    };
  } else {
    table.make_stream = [](const ops::StreamConfig& config) -> std::unique_ptr<ops::Stream> {
      return std::make_unique<cpu::FastStream>(changed_fast(), config.num_threads,
                                               cpu::effective_isa());
    };
  }
  return table;
}

// The rows that top_rows chose in the last step, by call (a layer, or a part of its tokens) and token: by row of the
// sequence.
struct Chosen {
  std::vector<std::map<int64_t, std::set<int>>> layers;
  const ops::Backend* backend = nullptr;
};
Chosen& chosen() {
  static Chosen all;
  return all;
}

void watched_top_rows(const ops::TopRowsArgs& args, ops::Stream& stream) {
  chosen().backend->top_rows.run(args, stream);
  std::map<int32_t, int> row_of_block;
  const Tensor& table = args.queries.block_tables;
  for (int64_t i = 0; i < table.dim(1); ++i)
    row_of_block[table.row<int32_t>(0)[i]] = static_cast<int>(i * args.block_tokens);
  if (args.queries.token_begin == 0 || chosen().layers.empty() ||
      chosen().layers.back().contains(args.queries.token_begin))
    chosen().layers.emplace_back();
  for (int64_t t = args.queries.token_begin; t < args.queries.token_end; ++t) {
    int before = -1;
    for (int32_t i = 0; i < args.counts.row<int32_t>(t)[0]; ++i) {
      const int32_t flat = args.rows.row<int32_t>(t)[i];
      const int row = row_of_block.at(flat / static_cast<int32_t>(args.block_tokens)) +
                      flat % static_cast<int32_t>(args.block_tokens);
      EXPECT_GT(row, before) << "the list of token " << t << " does not rise";
      before = row;
      chosen().layers.back()[t].insert(row);
    }
  }
}

const ops::Backend& watched(const ops::Backend& backend) {
  chosen() = {.layers = {}, .backend = &backend};
  ops::Backend& table = changeable(backend);
  table.top_rows.run = watched_top_rows;
  return table;
}

class V32GoldenTest : public testing::TestWithParam<BackendCase> {};

void expect_golden_selections(const V32Golden& golden) {
  for (size_t layer = 0; layer < kV32Layers; ++layer) {
    EXPECT_LE(golden.close[layer].size(), 1u);
    for (size_t i = 0; i < golden.selected[layer].size(); ++i) {
      const int position = golden.first_selected + static_cast<int>(i);
      if (golden.close[layer].contains(position)) continue;
      EXPECT_EQ(chosen().layers.at(layer).at(position), golden.selected[layer][i])
          << "layer " << layer << ", position " << position;
    }
  }
}

TEST_P(V32GoldenTest, logits_greedy_tokens_and_selected_rows_equal_the_reference) {
  const bool is_reference = &GetParam().backend() == &cpu::reference_backend();
  const LoadedModel loaded(checkpoint().directory(), {}, watched(GetParam().backend()));
  ErrorTable table(std::string("v32, float32, ") + GetParam().name);
  for (const V32Golden& golden : golden_prompts()) {
    // The clear backend is too slow for the longest.
    if (golden.num_tokens > 333 && (is_reference || kIsSanitized)) continue;
    SCOPED_TRACE(std::to_string(golden.num_tokens) + " tokens");
    StepHarness harness(loaded, {.max_batch_tokens = 3000, .num_blocks = 50});
    Slice slice{.sequence = harness.add_sequence(), .tokens = v32_prompt(golden.num_tokens)};
    chosen().layers.clear();
    const SliceOutput out = harness.step({slice})[0];
    EXPECT_LE(max_abs_difference(out.logits.back(), golden.logits), kV32LogitError);
    table.add(std::to_string(golden.num_tokens) + " tokens, logits", out.logits.back(),
              golden.logits);
    for (size_t i = 0; i < golden.argmax.size(); ++i)
      EXPECT_EQ(argmax(out.logits[i]), golden.argmax[i]) << "position " << i;
    if (golden.num_tokens > kV32Topk) expect_golden_selections(golden);
    std::vector<int32_t> greedy = {argmax(out.logits.back())};
    while (greedy.size() < golden.greedy.size()) {
      const Slice decode{.sequence = slice.sequence, .tokens = {greedy.back()}};
      greedy.push_back(argmax(harness.step({decode})[0].logits.back()));
    }
    EXPECT_EQ(greedy, golden.greedy);
  }
  table.print();
}

Rows logits_of(const LoadedModel& loaded, const std::vector<int32_t>& ids) {
  StepHarness harness(loaded, {.max_batch_tokens = 512, .num_blocks = 16});
  return harness.step({{.sequence = harness.add_sequence(), .tokens = ids}})[0].logits;
}

// With room for all rows an indexer changes nothing: V3 is the oracle of everything but the choice.
TEST_P(V32GoldenTest, an_indexer_that_keeps_all_rows_gives_the_bits_of_v3) {
  for (const bool is_fp8 : {false, true}) {
    const V32Checkpoint all({.index_topk = 4096, .is_fp8 = is_fp8});
    const V32Checkpoint v3({.is_v3 = true, .is_fp8 = is_fp8});
    for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kAuto}) {
      const ModelOptions options{.kv_cache_dtype = is_fp8 ? DType::kF8E4M3 : DType::kF32,
                                 .attention_form = form};
      const LoadedModel dsa(all.directory(), options, GetParam().backend());
      const LoadedModel mla(v3.directory(), options, GetParam().backend());
      const std::vector<int32_t> ids = v32_prompt(333);
      EXPECT_EQ(logits_of(dsa, ids), logits_of(mla, ids));
      StepHarness a(dsa, {.num_blocks = 16}), b(mla, {.num_blocks = 16});
      EXPECT_EQ(a.generate(ids, 8, 50), b.generate(ids, 8, 50));
    }
  }
}

// FP8 keys and queries choose mostly what float32 ones do (random weights, whose scores lie close together).
TEST(V32Fp8Keys, choose_mostly_the_rows_of_float32) {
  const V32Checkpoint fp8({.is_fp8 = true});
  const ops::Backend& backend = watched(cpu::fast_backend());
  std::vector<std::map<int64_t, std::set<int>>> rows;
  for (const DType cache : {DType::kF32, DType::kF8E4M3}) {
    chosen().layers.clear();
    const LoadedModel loaded(
        fp8.directory(), {.dequantize = true, .weight_dtype = DType::kF32, .kv_cache_dtype = cache},
        backend);
    logits_of(loaded, v32_prompt(333));
    rows.push_back(chosen().layers.at(0));  // before attention to rounded rows
  }
  size_t num_common = 0, num_all = 0;
  for (const auto& [token, exact] : rows[0]) {
    num_all += exact.size();
    for (const int row : rows[1].at(token)) num_common += exact.count(row);
  }
  EXPECT_EQ(num_all, size_t{269} * kV32Topk);
  const double share = static_cast<double>(num_common) / static_cast<double>(num_all);
  std::printf("FP8 keys: %.3f of the rows of float32\n", share);
  EXPECT_GT(share, 0.95);
  EXPECT_LT(share, 1.0);
}

// ---- Mistakes that others made. Each is the backend with one operator told otherwise.

const ops::Backend*& real() {
  static const ops::Backend* backend = nullptr;
  return backend;
}

// A copy of a tensor's values, which lives as long as this.
struct Copied {
  std::vector<float> values;
  Tensor view;

  explicit Copied(const Tensor& t) : values(static_cast<size_t>(t.num_elements())) {
    const int64_t rows = t.rank() == 1 ? 1 : t.dim(0), in_row = t.num_elements() / rows;
    FATHOM_CHECK(t.rank() == 2 || t.is_contiguous(), t.describe());
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(t.as<float>() + (rows == 1 ? 0 : row * t.stride(0)), in_row,
                  values.begin() + row * in_row);
    view = t;
    switch (t.rank()) {
      case 1:
        view = Tensor::contiguous(values.data(), DType::kF32, {t.dim(0)});
        break;
      case 2:
        view = Tensor::contiguous(values.data(), DType::kF32, {t.dim(0), t.dim(1)});
        break;
      default:
        view = Tensor::contiguous(values.data(), DType::kF32, {t.dim(0), t.dim(1), t.dim(2)});
    }
  }
};

// Reads the last axis in another order: products of queries and keys do not notice, their rotation does.
using Order = std::vector<size_t> (*)(size_t dim, size_t rope_dim);

std::vector<size_t> interleaved(size_t dim, size_t rope_dim) {
  std::vector<size_t> order(dim);
  for (size_t i = 0; i < dim; ++i) order[i] = i;
  for (size_t j = 0; j < rope_dim / 2; ++j) {
    order[j] = 2 * j;
    order[j + rope_dim / 2] = 2 * j + 1;
  }
  return order;
}

std::vector<size_t> last_dims_first(size_t dim, size_t rope_dim) {
  std::vector<size_t> order(dim);
  for (size_t i = 0; i < dim; ++i) order[i] = (i + dim - rope_dim) % dim;
  return order;
}

void reorder(Copied& copied, Order order_of, int64_t rope_dim) {
  const auto dim = static_cast<size_t>(copied.view.dim(copied.view.rank() - 1));
  const std::vector<size_t> order = order_of(dim, static_cast<size_t>(rope_dim));
  const std::vector<float> before = copied.values;
  for (size_t i = 0; i < before.size(); ++i)
    copied.values[i] = before[i / dim * dim + order[i % dim]];
}

template <Order kOrder>
void append_in_order(const ops::IndexAppendArgs& args, ops::Stream& stream) {
  Copied k(args.k), weight(args.weight), bias(args.bias);
  for (Copied* each : {&k, &weight, &bias}) reorder(*each, kOrder, args.table.dim(1));
  ops::IndexAppendArgs changed = args;
  changed.k = k.view;
  changed.weight = weight.view;
  changed.bias = bias.view;
  real()->index_append.run(changed, stream);
}

template <Order kOrder>
void query_in_order(const ops::IndexQueryArgs& args, ops::Stream& stream) {
  Copied q(args.q);
  reorder(q, kOrder, args.table.dim(1));
  ops::IndexQueryArgs changed = args;
  changed.q = q.view;
  real()->index_query.run(changed, stream);
}

// Angles of 0.
void clear_angles(Copied& table) {
  const auto dim = static_cast<size_t>(table.view.dim(1));
  for (size_t i = 0; i < table.values.size(); ++i)
    table.values[i] = i % dim < dim / 2 ? 1.0f : 0.0f;
}

template <class Args, ops::Operator<Args> ops::Backend::*kOperator>
void without_rope(const Args& args, ops::Stream& stream) {
  Copied table(args.table);
  clear_angles(table);
  Args changed = args;
  changed.table = table.view;
  (real()->*kOperator).run(changed, stream);
}

void without_bias(const ops::IndexAppendArgs& args, ops::Stream& stream) {
  Copied bias(args.bias);
  std::fill(bias.values.begin(), bias.values.end(), 0.0f);
  ops::IndexAppendArgs changed = args;
  changed.bias = bias.view;
  real()->index_append.run(changed, stream);
}

void with_another_eps(const ops::IndexAppendArgs& args, ops::Stream& stream) {
  ops::IndexAppendArgs changed = args;
  changed.eps = 1e-3f;
  real()->index_append.run(changed, stream);
}

void with_magnitudes_of_weights(const ops::IndexQueryArgs& args, ops::Stream& stream) {
  real()->index_query.run(args, stream);
  for (int64_t i = 0; i < args.weights.num_elements(); ++i)
    args.weights.as<float>()[i] = std::fabs(args.weights.as<float>()[i]);
}

// x = relu(x) - relu(-x)
void without_relu(const ops::IndexScoresArgs& args, ops::Stream& stream) {
  Copied q(args.q), below(args.scores);
  for (float& value : q.values) value = -value;
  ops::IndexScoresArgs negative = args;
  negative.q = q.view;
  negative.scores = below.view;
  real()->index_scores.run(negative, stream);
  real()->index_scores.run(args, stream);
  for (size_t i = 0; i < below.values.size(); ++i)
    if (std::isfinite(below.values[i])) args.scores.as<float>()[i] -= below.values[i];
}

struct Mutant {
  const char* name;
  void (*change)(ops::Backend& backend);
  int least_seen;  // of the 269 rows behind the first 64
};

constexpr Mutant kMutants[] = {
    {"interleaved_rope",
     [](ops::Backend& backend) {
       backend.index_append.run = append_in_order<interleaved>;
       backend.index_query.run = query_in_order<interleaved>;
     },
     260},
    {"no_rope",
     [](ops::Backend& backend) {
       backend.index_append.run = without_rope<ops::IndexAppendArgs, &ops::Backend::index_append>;
       backend.index_query.run = without_rope<ops::IndexQueryArgs, &ops::Backend::index_query>;
     },
     260},
    {"rope_on_the_last_dims",
     [](ops::Backend& backend) {
       backend.index_append.run = append_in_order<last_dims_first>;
       backend.index_query.run = query_in_order<last_dims_first>;
     },
     260},
    {"no_norm_bias", [](ops::Backend& backend) { backend.index_append.run = without_bias; }, 250},
    {"no_relu", [](ops::Backend& backend) { backend.index_scores.run = without_relu; }, 260},
    {"magnitudes_of_weights",
     [](ops::Backend& backend) { backend.index_query.run = with_magnitudes_of_weights; }, 260},
    {"another_eps", [](ops::Backend& backend) { backend.index_append.run = with_another_eps; },
     200},
};

class V32MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(V32MutantTest, shows_behind_the_first_topk_rows_and_not_before) {
  real() = &cpu::fast_backend();
  ops::Backend& mutant = changeable(cpu::fast_backend());
  GetParam().change(mutant);
  const std::vector<int32_t> ids = v32_prompt(333);
  const Rows right = logits_of(LoadedModel(checkpoint().directory(), {}, cpu::fast_backend()), ids);
  const Rows wrong = logits_of(LoadedModel(checkpoint().directory(), {}, mutant), ids);
  int num_seen = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i < kV32Topk) {
      EXPECT_EQ(wrong[i], right[i]) << "position " << i;
    } else if (max_abs_difference(wrong[i], right[i]) > kV32LogitError) {
      ++num_seen;
    }
  }
  EXPECT_GE(num_seen, GetParam().least_seen);
  std::printf("%s: %d of %zu rows\n", GetParam().name, num_seen, ids.size() - kV32Topk);
}

INSTANTIATE_TEST_SUITE_P(Backends, V32GoldenTest, testing::ValuesIn(all_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(mistakes, V32MutantTest, testing::ValuesIn(kMutants),
                         [](const testing::TestParamInfo<Mutant>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace fathom::model
