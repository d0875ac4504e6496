// Attention to lists of rows against a float64 oracle and against absorbed attention.

#include <algorithm>

#include "ops/index.h"
#include "ops/kv_cache.h"
#include "tests/ops/mla_absorbed_cases.h"

namespace fathom::ops_test {
namespace {

class MlaSparseTest : public MlaAbsorbedFixture {
 protected:
  using Lists = std::vector<std::vector<int64_t>>;

  DeviceTensor upload_cache(const AbsorbedInputs& in) {
    const auto num_rows = static_cast<int64_t>(in.cache.size()) / in.format.row_bytes;
    return upload({num_rows / kCacheBlockTokens, kCacheBlockTokens, in.format.row_bytes}, in.cache);
  }

  // lists: rows of the sequence that each token attends to.
  std::vector<uint8_t> run_listed(const AbsorbedCase& c, const AbsorbedInputs& in,
                                  const Lists& lists, int64_t width, HostTensor* values = nullptr) {
    const DeviceTensor cache = upload_cache(in);
    const auto row_of = [&in](int64_t sequence, int64_t row) {
      return in.block_tables.at(sequence, row / kCacheBlockTokens) * kCacheBlockTokens +
             static_cast<double>(row % kCacheBlockTokens);
    };
    return attend(c, in, lists, width, {.rows = cache.view(), .format = in.format}, row_of, values);
  }

  // The same by way of a copy of the sequences' rows in the type of activations, one behind the other.
  std::vector<uint8_t> run_copied(const AbsorbedCase& c, const AbsorbedInputs& in,
                                  const Lists& lists, int64_t width, HostTensor* values = nullptr,
                                  bool of_sequence = false) {
    const DeviceTensor cache = upload_cache(in), tables = upload(in.block_tables);
    std::vector<ops::ExpandedSegment> segments;
    int64_t num_rows = 0;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      segments.push_back({.sequence_idx = static_cast<int64_t>(s),
                          .num_rows = c.sequences[s].kv_len,
                          .buffer_begin = num_rows});
      num_rows += c.sequences[s].kv_len;
    }
    const int64_t rank = c.dims.rank, dim = rank + c.dims.rope;
    const DeviceTensor copy = empty(act(), {num_rows, dim});
    ops::kv_gather({.cache = {.rows = cache.view(), .format = in.format},
                    .block_tables = tables.view(),
                    .segments = segments,
                    .latent = copy.view().slice(1, 0, rank),
                    .k_rope = copy.view().slice(1, rank, dim)},
                   stream());
    const ops::KvFormat format = ops::KvFormat::of(act(), rank, c.dims.rope);
    const Tensor rows =
        Tensor::contiguous(copy.view().data(), DType::kU8, {num_rows, 1, format.row_bytes});
    return attend(
        c, in, lists, width, {.rows = rows, .format = format},
        [&segments](int64_t sequence, int64_t row) {
          return static_cast<double>(segments[static_cast<size_t>(sequence)].buffer_begin + row);
        },
        values, of_sequence);
  }

  // row_of(sequence, row): where the cache has it.
  template <class RowOf>
  std::vector<uint8_t> attend(const AbsorbedCase& c, const AbsorbedInputs& in, const Lists& lists,
                              int64_t width, const ops::KvCache& cache, const RowOf& row_of,
                              HostTensor* values = nullptr, bool of_sequence = false) {
    const int64_t tokens = in.query_start.back();
    HostTensor rows(DType::kI32, {tokens, width}, -1), counts(DType::kI32, {tokens});
    size_t sequence = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      while (in.query_start[sequence + 1] <= t) ++sequence;
      const std::vector<int64_t>& list = lists[static_cast<size_t>(t)];
      counts.at(t) = static_cast<double>(list.size());
      for (size_t i = 0; i < list.size(); ++i)
        rows.at(t, static_cast<int64_t>(i)) = row_of(static_cast<int64_t>(sequence), list[i]);
    }
    const DeviceTensor q_latent = upload(in.q_latent), q_rope = upload(in.q_rope);
    const DeviceTensor rows_in = upload(rows), counts_in = upload(counts);
    const DeviceTensor out = empty(act(), {tokens, c.dims.heads, c.dims.rank});
    ops::mla_sparse({.q_latent = q_latent.view(),
                     .q_rope = q_rope.view(),
                     .cache = cache,
                     .rows = rows_in.view(),
                     .counts = counts_in.view(),
                     .of_sequence = of_sequence,
                     .scale = in.scale,
                     .out = out.view()},
                    stream());
    if (values != nullptr) *values = download(out.view());
    return bytes(out.view());
  }

  // All rows that each token sees, or every third of them and its own.
  static Lists lists_of(const AbsorbedCase& c, const AbsorbedInputs& in, int64_t step) {
    Lists lists;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const QuerySequence& sequence = c.sequences[s];
      std::vector<uint64_t> mask;
      if (c.with_tree && sequence.queries <= ops::kMaxTreeTokens)
        mask.assign(in.tree_mask.begin() + in.query_start[s],
                    in.tree_mask.begin() + in.query_start[s + 1]);
      const ref::Sees sees = sees_rule(sequence.kv_len - sequence.queries, mask);
      for (int64_t query = 0; query < sequence.queries; ++query) {
        lists.emplace_back();
        const int64_t own = sequence.kv_len - sequence.queries + query;
        for (int64_t row = 0; row < sequence.kv_len; ++row)
          if (sees(query, row) && (row % step == 0 || row == own)) lists.back().push_back(row);
      }
    }
    return lists;
  }

  // The rows before its own of which has(query, row), and its own, of each token of a sequence.
  template <class Has>
  static Lists lists_where(const QuerySequence& sequence, const Has& has) {
    Lists lists;
    for (int64_t query = 0; query < sequence.queries; ++query) {
      lists.emplace_back();
      const int64_t own = sequence.kv_len - sequence.queries + query;
      for (int64_t row = 0; row < own; ++row)
        if (has(query, row)) lists.back().push_back(row);
      lists.back().push_back(own);
    }
    return lists;
  }

  // Some rows, which are not those of a token's neighbours. The third of each four lists few, the fourth all of two
  // tiles.
  static Lists neighbours_lists(const QuerySequence& sequence) {
    return lists_where(sequence, [](int64_t query, int64_t row) {
      const int64_t step = query % 4 == 2 ? 97 : 7;
      return (row * 3 + query) % step < 2 || (query % 4 == 3 && row >= 64 && row < 192);
    });
  }

  // Rows far from each other, which no two neighbours share.
  static Lists scattered_lists(const QuerySequence& sequence) {
    return lists_where(sequence,
                       [](int64_t query, int64_t row) { return row % 997 == query % 997; });
  }

  // The same as one by one, of a copy.
  void expect_shared(const QuerySequence& sequence, const Lists& lists) {
    if (act() != DType::kBf16) return;
    AbsorbedCase c{.dims = kAttentionDims[0],
                   .sequences = {sequence},
                   .cache_dtype = DType::kF8E4M3,
                   .seed = 37};
    c.dims.heads = 16;
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    HostTensor one_by_one, shared;
    run_copied(c, in, lists, 2048, &one_by_one);
    run_copied(c, in, lists, 2048, &shared, true);
    expect_close(shared, one_by_one, kAttentionBounds);
  }

  // Every third row of each token and its own.
  void expect_listed(const AbsorbedCase& c) {
    SCOPED_TRACE(std::string(tensor::dtype_name(c.cache_dtype)) + ", heads " +
                 std::to_string(c.dims.heads));
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    const Lists lists = lists_of(c, in, 3);
    HostTensor got;
    run_listed(c, in, lists, 2048, &got);
    const HostTensor q = concatenated(in.q_latent, in.q_rope);
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const int64_t begin = in.query_start[s], end = in.query_start[s + 1];
      if (c.sequences[s].kv_len == 0) {
        for (int64_t i = 0; i < c.dims.rank; ++i) EXPECT_EQ(got.at(begin, 0, i), 0);
        continue;
      }
      const HostTensor expected = ref::attention(
          q.rows(begin, end), in.rows[s], in.rows[s].columns(0, c.dims.rank), in.scale,
          [&](int64_t query, int64_t row) {
            return std::ranges::binary_search(lists[static_cast<size_t>(begin + query)], row);
          });
      expect_close(got.rows(begin, end), expected, kAttentionBounds);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(backends, MlaSparseTest,
                         testing::ValuesIn(backends_with(&ops::Backend::mla_sparse)), backend_name);

const std::vector<QuerySequence> kListedSequences = {{1, 513},  {3, 64},  {2, 0},   {1, 1},
                                                     {66, 130}, {7, 700}, {1, 9000}};

TEST_P(MlaSparseTest, with_all_rows_gives_the_bits_of_absorbed_attention) {
  for (const DType cache : kCacheTypes)
    for (const bool with_tree : {false, true}) {
      // A GPU adds up rows by their places in the sequence or in the list, and lists have no gaps.
      if (with_tree && backend().device_memory) continue;
      AbsorbedCase c{.dims = kAttentionDims[1],
                     .sequences = kListedSequences,
                     .cache_dtype = cache,
                     .with_tree = with_tree,
                     .seed = 31};
      if (cache == DType::kF32) {
        c.dims = kAttentionDims[2];
      } else if (backend().device_memory) {
        c.dims = kAttentionDims[0];
      }
      const AbsorbedInputs in = make_absorbed_inputs(c, act());
      EXPECT_EQ(run_listed(c, in, lists_of(c, in, 1), 9000), run(c, in, 0, c.sequences.size()))
          << tensor::dtype_name(cache);
    }
}

// A GPU has a kernel for lists of up to 2,048 rows of few tokens.
TEST_P(MlaSparseTest, gives_the_same_bits_however_long_lists_may_be) {
  for (const DType cache : kCacheTypes) {
    const AbsorbedCase c{.dims = kAttentionDims[0],
                         .sequences = {{1, 1024}, {1, 1025}, {1, 0}, {1, 2000}, {1, 60}},
                         .cache_dtype = cache,
                         .seed = 34};
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    const Lists lists = lists_of(c, in, 1);
    EXPECT_EQ(run_listed(c, in, lists, 2048), run_listed(c, in, lists, 2049))
        << tensor::dtype_name(cache);
  }
}

// More heads than kFewSparseHeads, where activations are in bf16: few tokens and more.
TEST_P(MlaSparseTest, of_a_copy_in_bf16_gives_the_bits_of_rows_in_fp8) {
  if (act() != DType::kBf16) return;
  for (const int64_t heads : {17, 64, 128})
    for (const std::vector<QuerySequence>& sequences :
         {std::vector<QuerySequence>{{2, 200}, {3, 70}},
          std::vector<QuerySequence>{{40, 700}, {1, 0}, {3, 130}, {66, 400}}}) {
      AbsorbedCase c{.dims = kAttentionDims[0],
                     .sequences = sequences,
                     .cache_dtype = DType::kF8E4M3,
                     .seed = 35};
      c.dims.heads = heads;
      const AbsorbedInputs in = make_absorbed_inputs(c, act());
      const Lists lists = lists_of(c, in, 3);
      EXPECT_EQ(run_copied(c, in, lists, 2048), run_listed(c, in, lists, 2048)) << heads;
    }
}

// Four tokens of 16 heads share lists on a GPU; some are left, and last rows fill no tile.
TEST_P(MlaSparseTest, of_one_sequence_attends_to_the_list_of_each_token) {
  for (const QuerySequence& sequence : {QuerySequence{135, 500}, QuerySequence{132, 132}})
    expect_shared(sequence, neighbours_lists(sequence));
}

// More than share lists at once.
TEST_P(MlaSparseTest, of_one_sequence_attends_to_the_lists_of_many_tokens) {
  const QuerySequence sequence{2183, 2400};
  expect_shared(sequence, neighbours_lists(sequence));
}

// A GPU marks rows in shared memory: of 40,960 rows and lists of 2,048 that is just what a kernel has by default,
// beside what it declares.
TEST_P(MlaSparseTest, of_one_long_sequence_attends_to_the_list_of_each_token) {
  if (!backend().device_memory) return;
  for (const int64_t rows : {40'960, 45'057}) {
    const QuerySequence sequence{132, rows};
    expect_shared(sequence, scattered_lists(sequence));
  }
}

TEST_P(MlaSparseTest, attends_to_the_rows_of_the_lists_alone) {
  for (const DType cache : kCacheTypes)
    for (const int64_t heads : {3, 16, 64, 128}) {
      AbsorbedCase c{.dims = kAttentionDims[0],
                     .sequences = {{2, 400}, {1, 0}, {3, 70}},
                     .cache_dtype = cache,
                     .seed = 32};
      c.dims.heads = heads;
      expect_listed(c);
    }
  // A decode of several sequences of published lists, and a prompt's tokens.
  for (const std::vector<QuerySequence>& sequences :
       {std::vector<QuerySequence>{{1, 6100}, {1, 3000}, {1, 30}},
        std::vector<QuerySequence>{{40, 700}}}) {
    AbsorbedCase c{.dims = kAttentionDims[0],
                   .sequences = sequences,
                   .cache_dtype = DType::kF8E4M3,
                   .seed = 33};
    c.dims.heads = 16;
    expect_listed(c);
  }
  // Of more tokens than kFewSparseTokens a GPU takes bf16 rows otherwise.
  if (!backend().device_memory) return;
  AbsorbedCase c{.dims = kAttentionDims[0],
                 .sequences = {{130, 300}, {1, 0}, {70, 1000}},
                 .cache_dtype = DType::kBf16,
                 .seed = 36};
  c.dims.heads = 16;
  expect_listed(c);
}

}  // namespace
}  // namespace fathom::ops_test
