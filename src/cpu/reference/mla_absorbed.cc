#include <algorithm>
#include <cmath>

#include "cpu/reference/kv_row.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/reference/visibility.h"
#include "cpu/stream.h"
#include "ops/mla.h"

namespace fathom::cpu::reference {
namespace {

struct AbsorbedScratch {
  float* row;     // [kv_dim]
  float* scores;  // [heads, max_rows]
};

// Of a sequence. How many it has is not known before it runs.
int64_t max_rows(const ops::MlaAbsorbedArgs& args) {
  return args.block_tables.dim(1) * args.cache.block_tokens();
}

AbsorbedScratch carve(const ops::MlaAbsorbedArgs& args, ScratchArena& arena) {
  return {.row = arena.take<float>(args.cache.format.dim()),
          .scores = arena.take<float>(args.out.dim(1) * max_rows(args))};
}

// The cache rows of one sequence as float32, one at a time.
class LatentRows {
 public:
  LatentRows(const ops::MlaAbsorbedArgs& args, int64_t seq, float* row_scratch)
      : cache_(args.cache),
        block_table_(args.block_tables.row<int32_t>(seq)),
        count_(*args.kv_len.row<int32_t>(seq)),
        row_(row_scratch) {}

  int64_t count() const { return count_; }

  const float* row(int64_t row_idx) const {
    const int64_t block_tokens = cache_.block_tokens();
    const int32_t block_id = block_table_[row_idx / block_tokens];
    FATHOM_CHECK(block_id >= 0 && block_id < cache_.num_blocks(),
                 "block table entry " << row_idx / block_tokens << " is " << block_id << " of "
                                      << cache_.num_blocks());
    return load_kv_row(cache_, int64_t{block_id} * block_tokens + row_idx % block_tokens, row_);
  }

 private:
  const ops::KvCache& cache_;
  const int32_t* block_table_;
  int64_t count_;
  float* row_;
};

// One query token, all heads: each cache row is read twice (scores, values), whatever the number of
// heads. Rows that it does not see leave no gap, so a token of a tree gets the bits of a decode behind the same tokens.
void attend(const ops::MlaAbsorbedArgs& args, int64_t token, const LatentRows& rows,
            const Visibility& visible, float* scores) {
  const int64_t heads = args.out.dim(1), kv_lora_rank = args.out.dim(2);
  const int64_t qk_rope_head_dim = args.q_rope.dim(2), end = visible.end(rows.count());
  int64_t num_seen = 0;
  for (int64_t row = 0; row < end; ++row) {
    if (!visible.sees(row)) continue;
    const float* latent = rows.row(row);
    for (int64_t head = 0; head < heads; ++head)
      scores[head * end + num_seen] =
          (dot(args.q_latent.row<float>(token, head), latent, kv_lora_rank) +
           dot(args.q_rope.row<float>(token, head), latent + kv_lora_rank, qk_rope_head_dim)) *
          args.scale;
    ++num_seen;
  }
  for (int64_t head = 0; head < heads; ++head) {
    softmax(scores + head * end, num_seen);
    std::fill_n(args.out.row<float>(token, head), kv_lora_rank, 0.0f);
  }
  int64_t seen = 0;
  for (int64_t row = 0; row < end; ++row) {
    if (!visible.sees(row)) continue;
    const float* latent = rows.row(row);
    for (int64_t head = 0; head < heads; ++head)
      add_scaled(args.out.row<float>(token, head), scores[head * end + seen], latent, kv_lora_rank);
    ++seen;
  }
}

}  // namespace

int64_t mla_absorbed_scratch(const ops::MlaAbsorbedArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
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
    const LatentRows rows(args, seq, scratch.row);
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
      attend(args, token, rows, visible, scratch.scores);
    }
  }
}

}  // namespace fathom::cpu::reference
