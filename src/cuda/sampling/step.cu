// step_inputs, commit_tokens: a few words per slice. Bound by latency. Grid: step_inputs one block per slice, whose
// threads share its tokens and its row of block tables; commit_tokens one thread per slice. No shared memory.
// write_words, count_tokens: one thread per word, token, or count that is cleared.
// A slice of slot -1 is the padding of a captured graph: it reads and changes no slot.

#include "ops/step.h"

#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/sampling/ops.h"

namespace fathom::cuda {
namespace {

constexpr int kInputThreads = 512, kCommitThreads = 128, kWordThreads = 256;

struct InputParams {
  const int32_t *last_token, *length;     // i32[slots]
  const int32_t* block_tables;            // i32[slots, max_blocks]
  const int32_t* slice_slot;              // i32[slices]; -1 = padding
  const int32_t* query_start;             // i32[slices + 1]
  const int32_t *given_token, *relative;  // i32[tokens]
  int32_t *token_ids, *positions;         // i32[tokens]
  int64_t* kv_rows;                       // i64[tokens]
  int32_t* kv_len;                        // i32[slices]
  int32_t* tables;                        // i32[slices, max_blocks]
  int64_t max_blocks;
  int block_tokens;
};

__device__ __forceinline__ void fill_padding(const InputParams& p, int slice, int begin, int end) {
  for (int token = begin + static_cast<int>(threadIdx.x); token < end; token += kInputThreads) {
    p.token_ids[token] = 0;
    p.positions[token] = 0;
    p.kv_rows[token] = -1;
  }
  for (int64_t i = threadIdx.x; i < p.max_blocks; i += kInputThreads)
    p.tables[slice * p.max_blocks + i] = 0;
  if (threadIdx.x == 0) p.kv_len[slice] = 0;
}

__global__ void __launch_bounds__(kInputThreads)
    write_inputs(const __grid_constant__ InputParams p) {
  let_next_start();
  wait_for_previous();
  const int slice = static_cast<int>(blockIdx.x);
  const int slot = p.slice_slot[slice];
  const int begin = p.query_start[slice], end = p.query_start[slice + 1];
  if (slot < 0) return fill_padding(p, slice, begin, end);
  const int length = p.length[slot], last_token = p.last_token[slot];
  const int32_t* const blocks = p.block_tables + slot * p.max_blocks;
  for (int token = begin + static_cast<int>(threadIdx.x); token < end; token += kInputThreads) {
    const int given = p.given_token[token], row = length + (token - begin);
    p.token_ids[token] = given >= 0 ? given : last_token;
    p.positions[token] = length + p.relative[token];
    p.kv_rows[token] =
        int64_t{blocks[row / p.block_tokens]} * p.block_tokens + row % p.block_tokens;
  }
  for (int64_t i = threadIdx.x; i < p.max_blocks; i += kInputThreads)
    p.tables[slice * p.max_blocks + i] = blocks[i];
  if (threadIdx.x == 0) p.kv_len[slice] = length + (end - begin);
}

struct CommitParams {
  int32_t *last_token, *length;             // i32[slots]
  const int32_t* slice_slot;                // i32[slices]; -1 = padding
  const int32_t* query_start;               // i32[slices + 1]
  const int32_t* sampled;                   // i32[rows]; -1 = failed
  const int32_t *commit_row, *penalty_row;  // i32[slices]; -1 = none
  int32_t* counts;                          // i32[penalty_rows, vocab_size]; null allowed
  int64_t vocab_size;
  int slices;
};

__global__ void __launch_bounds__(kCommitThreads)
    commit_slices(const __grid_constant__ CommitParams p) {
  let_next_start();
  wait_for_previous();
  const int slice = static_cast<int>(blockIdx.x * kCommitThreads + threadIdx.x);
  if (slice >= p.slices) return;
  const int slot = p.slice_slot[slice];
  if (slot < 0) return;
  p.length[slot] += p.query_start[slice + 1] - p.query_start[slice];
  const int row = p.commit_row[slice];
  const int token = row < 0 ? -1 : p.sampled[row];
  if (token < 0) return;
  p.last_token[slot] = token;
  const int penalty_row = p.penalty_row[slice];
  // Bit 31 (in the prompt) stays as it is: the count below it never reaches 2^31.
  if (penalty_row >= 0 && p.counts != nullptr) ++p.counts[penalty_row * p.vocab_size + token];
}

struct WriteParams {
  const uint64_t* address;
  const int32_t* value;
  int64_t words;
};

__global__ void __launch_bounds__(kWordThreads) set_words(const __grid_constant__ WriteParams p) {
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kWordThreads + threadIdx.x;
  if (i < p.words) *reinterpret_cast<int32_t*>(p.address[i]) = p.value[i];
}

struct CountParams {
  int32_t* counts;        // i32[vocab_size]
  const int32_t* tokens;  // i32[num_tokens]
  int64_t vocab_size, num_tokens, num_prompt;
};

__global__ void __launch_bounds__(kWordThreads)
    clear_counts(const __grid_constant__ CountParams p) {
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kWordThreads + threadIdx.x;
  if (i < p.vocab_size) p.counts[i] = 0;
}

// Whole numbers: the order of threads does not show.
__global__ void __launch_bounds__(kWordThreads) add_counts(const __grid_constant__ CountParams p) {
  constexpr int32_t kInPrompt = INT32_MIN;
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kWordThreads + threadIdx.x;
  if (i >= p.num_tokens) return;
  if (i < p.num_prompt) {
    atomicOr(&p.counts[p.tokens[i]], kInPrompt);
  } else {
    atomicAdd(&p.counts[p.tokens[i]], 1);
  }
}

}  // namespace

void step_inputs(const ops::StepInputsArgs& args, ops::Stream& stream) {
  const InputParams params{.last_token = args.last_token.as<int32_t>(),
                           .length = args.length.as<int32_t>(),
                           .block_tables = args.block_tables.as<int32_t>(),
                           .slice_slot = args.slice_slot.as<int32_t>(),
                           .query_start = args.query_start.as<int32_t>(),
                           .given_token = args.given_token.as<int32_t>(),
                           .relative = args.relative.as<int32_t>(),
                           .token_ids = args.token_ids.as<int32_t>(),
                           .positions = args.positions.as<int32_t>(),
                           .kv_rows = args.kv_rows.as<int64_t>(),
                           .kv_len = args.kv_len.as<int32_t>(),
                           .tables = args.tables.as<int32_t>(),
                           .max_blocks = args.tables.dim(1),
                           .block_tokens = args.block_tokens};
  launch(write_inputs,
         {.grid = static_cast<unsigned>(args.slice_slot.dim(0)), .block = kInputThreads}, stream,
         params);
}

void commit_tokens(const ops::CommitTokensArgs& args, ops::Stream& stream) {
  CommitParams params{.last_token = args.last_token.as<int32_t>(),
                      .length = args.length.as<int32_t>(),
                      .slice_slot = args.slice_slot.as<int32_t>(),
                      .query_start = args.query_start.as<int32_t>(),
                      .sampled = args.sampled.as<int32_t>(),
                      .commit_row = args.commit_row.as<int32_t>(),
                      .penalty_row = args.penalty_row.as<int32_t>(),
                      .counts = nullptr,
                      .vocab_size = 0,
                      .slices = static_cast<int>(args.slice_slot.dim(0))};
  if (!args.counts.is_null()) {
    params.counts = args.counts.as<int32_t>();
    params.vocab_size = args.counts.dim(1);
  }
  launch(commit_slices, {.grid = num_tiles(params.slices, kCommitThreads), .block = kCommitThreads},
         stream, params);
}

void write_words(const ops::WriteWordsArgs& args, ops::Stream& stream) {
  const WriteParams params{.address = args.address.as<uint64_t>(),
                           .value = args.value.as<int32_t>(),
                           .words = args.value.dim(0)};
  if (params.words == 0) return;
  launch(set_words, {.grid = num_tiles(params.words, kWordThreads), .block = kWordThreads}, stream,
         params);
}

void count_tokens(const ops::CountTokensArgs& args, ops::Stream& stream) {
  const CountParams params{.counts = args.counts.as<int32_t>(),
                           .tokens = args.tokens.as<int32_t>(),
                           .vocab_size = args.counts.dim(0),
                           .num_tokens = args.tokens.dim(0),
                           .num_prompt = args.num_prompt};
  if (args.begins)
    launch(clear_counts,
           {.grid = num_tiles(params.vocab_size, kWordThreads), .block = kWordThreads}, stream,
           params);
  if (params.num_tokens > 0)
    launch(add_counts, {.grid = num_tiles(params.num_tokens, kWordThreads), .block = kWordThreads},
           stream, params);
}

}  // namespace fathom::cuda
