#include <algorithm>
#include <cmath>
#include <span>

#include "cpu/reference/kv_row.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/reference/visibility.h"
#include "cpu/stream.h"
#include "ops/index.h"
#include "ops/mla.h"

namespace fathom::cpu::reference {
namespace {

struct AbsorbedScratch {
  float* row;        // [kv_dim]
  float* scores;     // [heads, max_rows]
  int32_t* visible;  // [max_rows]
};

// Of a sequence. How many it has is not known before it runs.
int64_t max_rows(const ops::MlaAbsorbedArgs& args) {
  return args.block_tables.dim(1) * args.cache.block_tokens();
}
int64_t max_rows(const ops::MlaSparseArgs& args) { return args.rows.dim(1); }

template <class Args>
AbsorbedScratch carve(const Args& args, ScratchArena& arena) {
  return {.row = arena.take<float>(args.cache.format.dim()),
          .scores = arena.take<float>(args.out.dim(1) * max_rows(args)),
          .visible = arena.take<int32_t>(max_rows(args))};
}

template <class Args>
int64_t scratch_bytes(const Args& args) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
}

// The flat rows that a query token sees. Those that it does not see leave no gap, so a token of a tree gets the bits of
// a decode behind the same tokens.
std::span<const int32_t> visible_rows(const ops::MlaAbsorbedArgs& args, int64_t seq,
                                      const Visibility& visible, int32_t* rows) {
  const int64_t block_tokens = args.cache.block_tokens();
  const int32_t* const table = args.block_tables.row<int32_t>(seq);
  const int64_t end = visible.end(*args.kv_len.row<int32_t>(seq));
  size_t count = 0;
  for (int64_t row = 0; row < end; ++row) {
    if (!visible.sees(row)) continue;
    const int32_t block_id = table[row / block_tokens];
    FATHOM_CHECK(block_id >= 0 && block_id < args.cache.num_blocks(),
                 "block table entry " << row / block_tokens << " is " << block_id << " of "
                                      << args.cache.num_blocks());
    rows[count++] = static_cast<int32_t>(block_id * block_tokens + row % block_tokens);
  }
  return {rows, count};
}

// One query token, all heads: each cache row is read twice (scores, values), whatever the number of heads.
template <class Args>
void attend(const Args& args, int64_t token, std::span<const int32_t> rows,
            const AbsorbedScratch& scratch) {
  const int64_t heads = args.out.dim(1), kv_lora_rank = args.out.dim(2);
  const int64_t qk_rope_head_dim = args.q_rope.dim(2), count = std::ssize(rows);
  for (int64_t i = 0; i < count; ++i) {
    const float* latent = load_kv_row(args.cache, rows[static_cast<size_t>(i)], scratch.row);
    for (int64_t head = 0; head < heads; ++head)
      scratch.scores[head * count + i] =
          (dot(args.q_latent.template row<float>(token, head), latent, kv_lora_rank) +
           dot(args.q_rope.template row<float>(token, head), latent + kv_lora_rank,
               qk_rope_head_dim)) *
          args.scale;
  }
  for (int64_t head = 0; head < heads; ++head) {
    softmax(scratch.scores + head * count, count);
    std::fill_n(args.out.template row<float>(token, head), kv_lora_rank, 0.0f);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* latent = load_kv_row(args.cache, rows[static_cast<size_t>(i)], scratch.row);
    for (int64_t head = 0; head < heads; ++head)
      add_scaled(args.out.template row<float>(token, head), scratch.scores[head * count + i],
                 latent, kv_lora_rank);
  }
}

}  // namespace

int64_t mla_absorbed_scratch(const ops::MlaAbsorbedArgs& args, const ops::Stream&) {
  return scratch_bytes(args);
}

int64_t mla_sparse_scratch(const ops::MlaSparseArgs& args, const ops::Stream&) {
  return scratch_bytes(args);
}

void mla_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  ScratchArena arena(stream.scratch());
  const AbsorbedScratch scratch = carve(args, arena);
  for (int64_t seq = 0; seq < args.kv_len.dim(0); ++seq) {
    const int32_t begin = *args.query_start.row<int32_t>(seq);
    const int32_t end = *args.query_start.row<int32_t>(seq + 1);
    const int32_t kv_len = *args.kv_len.row<int32_t>(seq);
    FATHOM_CHECK(begin >= 0 && begin <= end && end <= args.out.dim(0),
                 "query tokens [" << begin << ", " << end << ") of " << args.out.dim(0));
    FATHOM_CHECK(kv_len == 0 || kv_len >= end - begin,
                 "kv_len[" << seq << "] is " << kv_len << " with " << end - begin << " queries");
    FATHOM_CHECK(kv_len <= max_rows(args), "kv_len[" << seq << "] is " << kv_len << " with "
                                                     << args.block_tables.dim(1) << " blocks of "
                                                     << args.cache.block_tokens());
    const bool is_causal = args.tree_mask.is_null() || end - begin > ops::kMaxTreeTokens;
    for (int32_t token = begin; token < end; ++token) {
      if (kv_len == 0) {  // padding
        std::fill_n(args.out.row<float>(token), args.out.stride(0), 0.0f);
        continue;
      }
      const Visibility visible{
          .first_query_row = kv_len - (end - begin),
          .query = token - begin,
          .tree_mask = is_causal ? nullptr : args.tree_mask.row<uint64_t>(token)};
      attend(args, token, visible_rows(args, seq, visible, scratch.visible), scratch);
    }
  }
}

void mla_sparse(const ops::MlaSparseArgs& args, ops::Stream& stream) {
  ScratchArena arena(stream.scratch());
  const AbsorbedScratch scratch = carve(args, arena);
  const int64_t num_rows = args.cache.num_blocks() * args.cache.block_tokens();
  for (int64_t token = 0; token < args.out.dim(0); ++token) {
    const int32_t count = *args.counts.row<int32_t>(token);
    FATHOM_CHECK(count >= 0 && count <= max_rows(args),
                 "counts[" << token << "] is " << count << " of " << max_rows(args));
    if (count == 0) {  // padding
      std::fill_n(args.out.row<float>(token), args.out.stride(0), 0.0f);
      continue;
    }
    const std::span<const int32_t> rows(args.rows.row<int32_t>(token), static_cast<size_t>(count));
    for (const int32_t row : rows)
      FATHOM_CHECK(row >= 0 && row < num_rows,
                   "rows of token " << token << " hold " << row << " of " << num_rows);
    attend(args, token, rows, scratch);
  }
}

}  // namespace fathom::cpu::reference
