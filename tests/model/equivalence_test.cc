// The same request computed in different ways: both attention forms, any chunking, any batch, any block
// boundary, drafts verified in one step. On the demo model and on a model with sparse attention, whose 64 rows most of
// these requests exceed; without outside references.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/parts_only.h"
#include "tests/model/backends.h"
#include "tests/model/golden.h"
#include "tests/model/step_harness.h"
#include "tests/model/v32_checkpoint.h"
#include "tests/source_tree.h"

namespace fathom::model {
namespace {

using tensor::DType;

constexpr double kRounding = 1e-4;  // of logits, between forms and groupings in float32

using Rows = std::vector<std::vector<float>>;

struct EquivalenceCase {
  BackendCase backend_case;
  bool is_sparse = false;

  const ops::Backend& backend() const { return backend_case.backend(); }
};

class EquivalenceTest : public testing::TestWithParam<EquivalenceCase> {
 protected:
  LoadedModel load(ModelOptions options = {}) const {
    options.dequantize = true;
    options.weight_dtype = DType::kF32;
    return LoadedModel(directory(), options, GetParam().backend());
  }
  static std::string directory() {
    static const V32Checkpoint sparse({.is_fp8 = true});
    return GetParam().is_sparse ? sparse.directory() : source_path("models/demo");
  }
  // The first tokens of the longest demo prompt, or as many of the other model's.
  static std::vector<int32_t> text(size_t num_tokens) {
    const json::Value golden = read_json(source_path("tests/data/demo/golden.json"));
    auto ids = GetParam().is_sparse ? v32_prompt(333)
                                    : golden[2]["prompt_ids"].get<std::vector<int32_t>>();
    FATHOM_CHECK(num_tokens <= ids.size(), num_tokens << " of " << ids.size());
    ids.resize(num_tokens);
    return ids;
  }
};

// The longer ones, on the fast backend alone. Batch invariance of the operators is tested on both.
class LongEquivalenceTest : public EquivalenceTest {};

std::vector<int32_t> part(const std::vector<int32_t>& ids, size_t begin, size_t end) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin),
          ids.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Logits of every token, fed in chunks.
Rows chunked_logits(StepHarness& harness, const std::vector<int32_t>& ids, size_t chunk_tokens) {
  const int sequence = harness.add_sequence();
  Rows rows;
  for (size_t begin = 0; begin < ids.size(); begin += chunk_tokens) {
    const size_t end = std::min(ids.size(), begin + chunk_tokens);
    SliceOutput out = harness.step({{.sequence = sequence, .tokens = part(ids, begin, end)}})[0];
    for (std::vector<float>& row : out.logits) rows.push_back(std::move(row));
  }
  return rows;
}

void expect_same_answers(const Rows& got, const Rows& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(max_abs_difference(got[i], expected[i]), kRounding) << "token " << i;
    EXPECT_EQ(argmax(got[i]), argmax(expected[i])) << "token " << i;
  }
}

TEST_P(EquivalenceTest, absorbed_and_expanded_attention_agree) {
  const std::vector<int32_t> ids = text(140);
  const LoadedModel absorbed = load({.attention_form = AttentionForm::kAbsorbed});
  StepHarness absorbed_harness(absorbed, {});
  const Rows expected = chunked_logits(absorbed_harness, ids, 140);
  for (const int expand_chunk_tokens : {16, 50, 1024}) {
    const LoadedModel expanded = load(
        {.attention_form = AttentionForm::kExpanded, .expand_chunk_tokens = expand_chunk_tokens});
    StepHarness harness(expanded, {});
    expect_same_answers(chunked_logits(harness, ids, 140), expected);
  }
}

TEST_P(EquivalenceTest, any_chunk_size_gives_the_same_answers) {
  const std::vector<int32_t> ids = text(140);
  const LoadedModel loaded = load({.expand_chunk_tokens = 64});
  StepHarness harness(loaded, {});
  const Rows expected = chunked_logits(harness, ids, 140);
  for (const size_t chunk_tokens : {1U, 7U, 63U, 64U, 65U, 100U}) {
    SCOPED_TRACE("chunks of " + std::to_string(chunk_tokens));
    expect_same_answers(chunked_logits(harness, ids, chunk_tokens), expected);
  }
}

// Also with FP8 activations and an FP8 cache, which turn a rounding difference into a visible one.
TEST_P(LongEquivalenceTest, one_form_gives_the_same_bits_for_any_chunk_size) {
  const std::vector<int32_t> ids = text(100);
  for (const bool dequantize : {true, false}) {
    for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kExpanded}) {
      const LoadedModel loaded(directory(),
                               {.dequantize = dequantize,
                                .kv_cache_dtype = dequantize ? DType::kF32 : DType::kF8E4M3,
                                .attention_form = form,
                                .expand_chunk_tokens = 32},
                               GetParam().backend());
      StepHarness harness(loaded, {});
      const Rows expected = chunked_logits(harness, ids, 100);
      for (const size_t chunk_tokens : {1U, 7U, 33U}) {
        EXPECT_EQ(chunked_logits(harness, ids, chunk_tokens), expected)
            << "form " << static_cast<int>(form) << ", chunks of " << chunk_tokens
            << (dequantize ? "" : ", FP8 activations and cache");
      }
    }
  }
}

TEST_P(LongEquivalenceTest, decoding_crosses_block_boundaries) {
  const LoadedModel loaded = load();
  const std::vector<int32_t> ids = text(132);
  StepHarness harness(loaded, {});
  const Rows expected = chunked_logits(harness, ids, 132);
  for (const size_t prompt_tokens : {63U, 64U, 65U, 127U, 128U, 129U}) {
    const int sequence = harness.add_sequence();
    harness.step({{.sequence = sequence, .tokens = part(ids, 0, prompt_tokens)}});
    for (size_t i = prompt_tokens; i < prompt_tokens + 3; ++i) {
      const SliceOutput out = harness.step({{.sequence = sequence, .tokens = {ids[i]}}})[0];
      EXPECT_LE(max_abs_difference(out.logits[0], expected[i]), kRounding)
          << "prompt of " << prompt_tokens << ", token " << i;
    }
  }
}

// Requests in every phase; each is computed alone and among the others.
struct Work {
  std::vector<int32_t> cached;
  Slice slice;
};

std::vector<Work> mixed_work(const std::vector<int32_t>& ids, bool with_tree) {
  std::vector<Work> work = {
      {.cached = part(ids, 0, 70), .slice = {.tokens = {ids[70]}}},           // decode
      {.cached = {}, .slice = {.tokens = part(ids, 5, 95)}},                  // prompt
      {.cached = part(ids, 10, 73), .slice = {.tokens = part(ids, 73, 75)}},  // short chunk
      {.cached = part(ids, 3, 67), .slice = {.tokens = part(ids, 67, 160)}},  // long chunk
      {.cached = part(ids, 0, 3), .slice = {.tokens = {ids[3]}}},             // early decode
      {.cached = {}, .slice = {.tokens = {ids[0]}}},                          // first token
  };
  if (with_tree) {
    work[2].slice.tree_mask = {0b01, 0b10};
    work[2].slice.relative_positions = {0, 0};
  }
  return work;
}

std::vector<SliceOutput> run_together(const LoadedModel& loaded, std::vector<Work> work) {
  StepHarness harness(loaded, {});
  std::vector<Slice> slices;
  for (Work& one : work) {
    one.slice.sequence = harness.add_sequence();
    if (!one.cached.empty()) {
      harness.step({{.sequence = one.slice.sequence, .tokens = one.cached}});
    }
    slices.push_back(one.slice);
  }
  return harness.step(slices);
}

TEST_P(LongEquivalenceTest, strangers_in_the_batch_do_not_change_a_bit) {
  const ModelOptions all_options[] = {
      {.dequantize = true, .weight_dtype = DType::kF32},
      {.kv_cache_dtype = DType::kBf16},  // FP8 weights and activations
      {.kv_cache_dtype = DType::kF8E4M3},
      {.dequantize = true, .weight_dtype = DType::kBf16},
      {.attention_form = AttentionForm::kAbsorbed},
  };
  for (const ModelOptions& options : all_options) {
    if (kIsSanitized && options.dequantize) continue;
    const LoadedModel loaded(directory(), options, GetParam().backend());
    const std::vector<Work> plain = mixed_work(text(200), false),
                            with_tree = mixed_work(text(200), true);
    const std::vector<SliceOutput> together = run_together(loaded, plain);
    const std::vector<SliceOutput> beside_tree = run_together(loaded, with_tree);
    for (size_t i = 0; i < plain.size(); ++i) {
      const SliceOutput alone = run_together(loaded, {plain[i]})[0];
      EXPECT_EQ(together[i].logits, alone.logits) << "request " << i;
      if (plain[i].slice.tree_mask != with_tree[i].slice.tree_mask) continue;
      EXPECT_EQ(beside_tree[i].logits, alone.logits) << "request " << i << " beside a tree";
    }
    EXPECT_EQ(beside_tree[2].logits, run_together(loaded, {with_tree[2]})[0].logits);
  }
}

// The layers take fused operators where the backend has them: the same bits as their parts.
TEST_P(EquivalenceTest, fused_operators_and_their_parts_give_the_same_bits) {
  const ops::Backend& full = GetParam().backend();
  static ops::Backend parts;  // a model keeps a reference
  parts = ops::parts_only(full);
  const LoadedModel fused_model(directory(), {}, full), parts_model(directory(), {}, parts);
  const std::vector<Work> work = mixed_work(text(200), true);
  const std::vector<SliceOutput> fused = run_together(fused_model, work);
  const std::vector<SliceOutput> in_parts = run_together(parts_model, work);
  for (size_t i = 0; i < work.size(); ++i)
    EXPECT_EQ(fused[i].logits, in_parts[i].logits) << "request " << i;
}

TEST_P(LongEquivalenceTest, verifying_several_tokens_equals_decoding_them_one_by_one) {
  const std::vector<int32_t> ids = text(80);
  for (const AttentionForm form :
       {AttentionForm::kAuto, AttentionForm::kAbsorbed, AttentionForm::kExpanded}) {
    const LoadedModel loaded = load({.attention_form = form, .expand_chunk_tokens = 16});
    StepHarness harness(loaded, {});
    const Rows expected = chunked_logits(harness, ids, 1);
    const int sequence = harness.add_sequence();
    harness.step({{.sequence = sequence, .tokens = part(ids, 0, 61)}});
    // A rejected draft leaves rows behind that the next step overwrites.
    harness.step({{.sequence = sequence, .tokens = {5, 6, 7, 8, 9}}});
    harness.truncate(sequence, 61);
    const SliceOutput out = harness.step({{.sequence = sequence, .tokens = part(ids, 61, 67)}})[0];
    expect_same_answers(out.logits, Rows(expected.begin() + 61, expected.begin() + 67));
  }
}

TEST_P(EquivalenceTest, every_path_of_a_verified_tree_equals_decoding_that_path) {
  const std::vector<int32_t> prefix = text(62);
  // Nodes: a0 -> b0 -> c0, a0 -> b1, a1 -> b2; parents come first.
  const std::vector<int32_t> tokens = {44, 14, 244, 77, 8, 133};
  const std::vector<int> parents = {-1, 0, -1, 0, 1, 2};
  Slice tree{.tokens = tokens};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto parent = static_cast<size_t>(parents[i]);
    const bool is_root = parents[i] < 0;
    tree.tree_mask.push_back(uint64_t{1} << i | (is_root ? 0 : tree.tree_mask[parent]));
    tree.relative_positions.push_back(is_root ? 0 : tree.relative_positions[parent] + 1);
  }
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kExpanded}) {
    const LoadedModel loaded = load({.attention_form = form, .expand_chunk_tokens = 64});
    StepHarness harness(loaded, {});
    tree.sequence = harness.add_sequence();
    harness.step({{.sequence = tree.sequence, .tokens = prefix}});
    const SliceOutput verified = harness.step({tree})[0];
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::vector<int32_t> path;
      for (int node = static_cast<int>(i); node >= 0; node = parents[static_cast<size_t>(node)]) {
        path.insert(path.begin(), tokens[static_cast<size_t>(node)]);
      }
      path.insert(path.begin(), prefix.begin(), prefix.end());
      const SliceOutput alone =
          harness.step({{.sequence = harness.add_sequence(), .tokens = path}})[0];
      EXPECT_LE(max_abs_difference(verified.logits[i], alone.logits.back()), kRounding)
          << "node " << i << ", form " << static_cast<int>(form);
    }
  }
}

TEST_P(EquivalenceTest, the_mtp_layer_drafts_the_same_from_its_own_cache) {
  const std::vector<int32_t> ids = text(101);
  const LoadedModel loaded = load();
  StepHarness harness(loaded, {.wants_mtp = true});
  const auto feed = [&](int sequence, size_t begin, size_t end) {
    return harness.step({{.sequence = sequence,
                          .tokens = part(ids, begin, end),
                          .next_tokens = part(ids, begin + 1, end + 1)}})[0];
  };
  const SliceOutput expected = feed(harness.add_sequence(), 0, 100);
  const int sequence = harness.add_sequence();
  feed(sequence, 0, 70);
  for (size_t i = 70; i < 100; i += 3) {
    const SliceOutput out = feed(sequence, i, i + 3);
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_LE(max_abs_difference(out.mtp_logits[j], expected.mtp_logits[i + j]), kRounding);
    }
  }
}

TEST_P(EquivalenceTest, the_mtp_layer_drafts_the_same_where_it_keeps_the_last_tokens_alone) {
  const std::vector<int32_t> ids = text(51);
  const LoadedModel loaded = load();
  // Of two sequences, each twice, so that rows of the first step are read.
  const auto drafts = [&](bool keeps) {
    StepHarness harness(loaded, {.wants_mtp = true});
    if (keeps) harness.keep_last_mtp_tokens();
    const int one = harness.add_sequence(), other = harness.add_sequence();
    const auto slice = [&](int sequence, size_t begin, size_t end) {
      return Slice{.sequence = sequence,
                   .tokens = part(ids, begin, end),
                   .next_tokens = part(ids, begin + 1, end + 1)};
    };
    std::vector<std::vector<float>> last;
    for (const auto& slices : {std::vector<Slice>{slice(one, 0, 40), slice(other, 3, 6)},
                               std::vector<Slice>{slice(one, 40, 43), slice(other, 6, 50)}})
      for (const SliceOutput& out : harness.step(slices)) {
        EXPECT_EQ(out.mtp_logits.size(), keeps ? 1 : out.logits.size());
        last.push_back(out.mtp_logits.back());
      }
    return last;
  };
  const std::vector<std::vector<float>> all = drafts(false), kept = drafts(true);
  ASSERT_EQ(kept.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_LE(max_abs_difference(kept[i], all[i]), kRounding) << i;
}

TEST_P(EquivalenceTest, the_mtp_layer_drafts_the_same_behind_rows_that_it_only_appended) {
  const std::vector<int32_t> ids = text(71);
  const LoadedModel loaded = load();
  StepHarness harness(loaded, {.wants_mtp = true});
  const auto feed = [&](int sequence, size_t begin, size_t end) {
    return harness.step({{.sequence = sequence,
                          .tokens = part(ids, begin, end),
                          .next_tokens = part(ids, begin + 1, end + 1)}})[0];
  };
  const auto draft = [&](bool only_rows_before) {
    const int sequence = harness.add_sequence();
    harness.only_append_mtp_rows(only_rows_before);
    feed(sequence, 0, 40);
    feed(sequence, 40, 69);
    harness.only_append_mtp_rows(false);
    return feed(sequence, 69, 70).mtp_logits[0];
  };
  EXPECT_EQ(draft(true), draft(false));
}

std::vector<EquivalenceCase> all_equivalences() {
  std::vector<EquivalenceCase> cases;
  for (const BackendCase& backend : all_backends())
    for (const bool is_sparse : {false, true}) cases.push_back({backend, is_sparse});
  return cases;
}

std::string equivalence_name(const testing::TestParamInfo<EquivalenceCase>& info) {
  return std::string(info.param.backend_case.name) + (info.param.is_sparse ? "_sparse" : "");
}

INSTANTIATE_TEST_SUITE_P(Backends, EquivalenceTest, testing::ValuesIn(all_equivalences()),
                         equivalence_name);

INSTANTIATE_TEST_SUITE_P(Backends, LongEquivalenceTest,
                         testing::Values(EquivalenceCase{kFast}, EquivalenceCase{kFast, true}),
                         equivalence_name);

}  // namespace
}  // namespace fathom::model
