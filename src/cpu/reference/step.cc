#include "ops/step.h"

#include <algorithm>
#include <limits>

#include "cpu/reference/ops.h"
#include "cpu/reference/slots.h"

namespace fathom::cpu::reference {
namespace {

bool is_padding(const tensor::Tensor& slice_slot, int64_t slice) {
  return at(slice_slot, slice) == -1;
}

void pad_slice(const ops::StepInputsArgs& args, int64_t slice) {
  for (int32_t token = *args.query_start.row<int32_t>(slice);
       token < *args.query_start.row<int32_t>(slice + 1); ++token) {
    *args.token_ids.row<int32_t>(token) = 0;
    *args.positions.row<int32_t>(token) = 0;
    *args.kv_rows.row<int64_t>(token) = -1;
  }
  *args.kv_len.row<int32_t>(slice) = 0;
  std::fill_n(args.tables.row<int32_t>(slice), args.tables.dim(1), 0);
}

}  // namespace

void step_inputs(const ops::StepInputsArgs& args, ops::Stream&) {
  const int64_t max_blocks = args.tables.dim(1);
  for (int64_t slice = 0; slice < args.slice_slot.dim(0); ++slice) {
    if (is_padding(args.slice_slot, slice)) {
      pad_slice(args, slice);
      continue;
    }
    const int32_t slot = checked_slot(args.slice_slot, slice, args.length.dim(0));
    const int32_t length = *args.length.row<int32_t>(slot);
    const int32_t begin = *args.query_start.row<int32_t>(slice);
    const int32_t end = *args.query_start.row<int32_t>(slice + 1);
    FATHOM_CHECK(begin >= 0 && begin <= end && end <= args.token_ids.dim(0),
                 "query tokens [" << begin << ", " << end << ") of " << args.token_ids.dim(0));
    FATHOM_CHECK(length >= 0 && length + (end - begin) <= max_blocks * args.block_tokens,
                 "slot " << slot << " grows to " << length + (end - begin) << " rows of "
                         << max_blocks * args.block_tokens);
    const int32_t* blocks = args.block_tables.row<int32_t>(slot);
    for (int32_t token = begin; token < end; ++token) {
      const int32_t given = *args.given_token.row<int32_t>(token);
      const int64_t row = length + (token - begin);
      *args.token_ids.row<int32_t>(token) =
          given >= 0 ? given : *args.last_token.row<int32_t>(slot);
      *args.positions.row<int32_t>(token) = length + *args.relative.row<int32_t>(token);
      *args.kv_rows.row<int64_t>(token) =
          int64_t{blocks[row / args.block_tokens]} * args.block_tokens + row % args.block_tokens;
    }
    *args.kv_len.row<int32_t>(slice) = length + (end - begin);
    std::copy_n(blocks, max_blocks, args.tables.row<int32_t>(slice));
  }
}

void commit_tokens(const ops::CommitTokensArgs& args, ops::Stream&) {
  for (int64_t slice = 0; slice < args.slice_slot.dim(0); ++slice) {
    if (is_padding(args.slice_slot, slice)) continue;
    const int32_t slot = checked_slot(args.slice_slot, slice, args.length.dim(0));
    *args.length.row<int32_t>(slot) +=
        *args.query_start.row<int32_t>(slice + 1) - *args.query_start.row<int32_t>(slice);
    const int32_t row = *args.commit_row.row<int32_t>(slice);
    if (row < 0) continue;
    const int32_t token = *args.sampled.row<int32_t>(row);
    if (token < 0) continue;  // failed row
    *args.last_token.row<int32_t>(slot) = token;
    const int32_t penalty_row = *args.penalty_row.row<int32_t>(slice);
    // Bit 31 (in the prompt) stays as it is: the count below it never reaches 2^31.
    if (penalty_row >= 0) ++args.counts.row<int32_t>(penalty_row)[token];
  }
}

void write_words(const ops::WriteWordsArgs& args, ops::Stream&) {
  for (int64_t i = 0; i < args.value.dim(0); ++i)
    *reinterpret_cast<int32_t*>(*args.address.row<uint64_t>(i)) = *args.value.row<int32_t>(i);
}

void count_tokens(const ops::CountTokensArgs& args, ops::Stream&) {
  constexpr int32_t kInPrompt = std::numeric_limits<int32_t>::min();  // bit 31
  int32_t* const counts = args.counts.row<int32_t>(0);
  if (args.begins) std::fill_n(counts, args.counts.dim(0), 0);
  for (int64_t i = 0; i < args.tokens.dim(0); ++i) {
    const int32_t token = *args.tokens.row<int32_t>(i);
    FATHOM_CHECK(token >= 0 && token < args.counts.dim(0), "token " << token << " to be counted");
    if (i < args.num_prompt) {
      counts[token] |= kInPrompt;
    } else {
      ++counts[token];
    }
  }
}

}  // namespace fathom::cpu::reference
