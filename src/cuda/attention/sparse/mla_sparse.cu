// Attention to lists of rows: absorbed attention where every query token is a sequence of its own, and its list is the
// table of that sequence's blocks, which have one row each. So the kernels of mla_absorbed run, but for the one that
// copies tiles of rows which lie side by side, and a token gets the bits of absorbed attention to as many rows in the
// order of the list.
//
// Many tokens of 16 heads of one sequence share lists (shared_lists.h): to the wide kernel four of them are one token
// of 64 heads.

#include <algorithm>

#include "cuda/attention/absorbed_shares.cuh"
#include "cuda/attention/choice.h"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/attention/ops.h"
#include "cuda/attention/sparse/few_lists.h"
#include "cuda/attention/sparse/ops.h"
#include "cuda/attention/sparse/shared_lists.h"
#include "cuda/runtime/device_arena.h"
#include "ops/mla.h"

namespace fathom::cuda {
namespace {

using absorbed::kSharingHeads;
using absorbed::kSharingTokens;
using absorbed::SharedLists;
using tensor::DType;
using tensor::Tensor;

// With more heads rows in f8 become bf16 before they are multiplied.
static_assert(ops::kFewSparseHeads == absorbed::kStreamRows);

// Tokens whose shared lists are in scratch at once: 19 MB of lists of 2,048 rows.
constexpr int64_t kTokensAtOnce = 2048;

// Without query_start: a token of each sequence.
ops::MlaAbsorbedArgs as_absorbed(const ops::MlaSparseArgs& args) {
  const Tensor& rows = args.cache.rows;
  return {.q_latent = args.q_latent,
          .q_rope = args.q_rope,
          .cache = {.rows = rows.reshape({rows.dim(0) * rows.dim(1), 1, rows.dim(2)}),
                    .format = args.cache.format},
          .query_start = {},
          .kv_len = args.counts,
          .block_tables = args.rows,
          .tree_mask = {},
          .plan = {},
          .scale = args.scale,
          .out = args.out};
}

ops::MlaSparseArgs tokens_of(const ops::MlaSparseArgs& args, int64_t begin, int64_t end) {
  ops::MlaSparseArgs some = args;
  for (Tensor* tensor : {&some.q_latent, &some.q_rope, &some.rows, &some.counts, &some.out})
    *tensor = tensor->slice(0, begin, end);
  return some;
}

// Many tokens of few heads: with rows in bf16 the wide kernel is faster than streams, though three quarters of its
// query rows are nobody's where tokens do not share lists, since it copies a list's rows by four warps and multiplies
// them by warpgroups.
bool may_take_wide(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  return takes_tuned_attention() && absorbed::can_run(args) &&
         args.out.dim(1) <= ops::kFewSparseHeads && args.out.dim(0) > ops::kFewSparseTokens &&
         absorbed::can_run_wide(args, stream);
}

// Four tokens' heads lie one behind the other as those of one do.
bool shares_lists(const ops::MlaSparseArgs& args) {
  return args.of_sequence && args.out.dim(1) == kSharingHeads &&
         args.q_rope.stride(0) == kSharingHeads * args.q_rope.stride(1) &&
         absorbed::merge_bytes(args) <= absorbed::kMostMergeBytes;
}

SharedLists carve(const ops::MlaSparseArgs& args, DeviceArena& arena) {
  const int64_t fours = std::min(args.out.dim(0), kTokensAtOnce) / kSharingTokens;
  const int64_t width = (kSharingTokens * args.rows.dim(1) + 63) / 64 * 64;
  return {.rows = arena.take<int32_t>(fours * width),
          .counts = arena.take<int32_t>(fours),
          .seen = arena.take<absorbed::SeenRows>(fours * width / 64),
          .width = width};
}

// A multiple of four tokens.
void attend_shared(const ops::MlaSparseArgs& args, const SharedLists& shared, ops::Stream& stream) {
  merge_lists(args, shared, stream);
  const int64_t fours = args.out.dim(0) / kSharingTokens, heads = absorbed::kWideRows;
  const auto of_fours = [&](const Tensor& tensor) {
    return tensor.reshape({fours, heads, tensor.dim(2)});
  };
  ops::MlaAbsorbedArgs absorbed = as_absorbed(args);
  absorbed.q_latent = of_fours(args.q_latent);
  absorbed.q_rope = Tensor::contiguous(args.q_rope.data(), args.q_rope.dtype(),
                                       {fours, heads, args.q_rope.stride(1)})
                        .slice(2, 0, args.q_rope.dim(2));
  absorbed.block_tables = Tensor::contiguous(shared.rows, DType::kI32, {fours, shared.width});
  absorbed.kv_len = Tensor::contiguous(shared.counts, DType::kI32, {fours});
  absorbed.out = of_fours(args.out);
  absorbed::run_wide(absorbed, stream, shared.seen);
}

int64_t wide_scratch(const ops::MlaSparseArgs& args) {
  ops::MlaAbsorbedArgs absorbed = as_absorbed(args);
  return (absorbed::wide_scratch_bytes(absorbed) + 255) / 256 * 256;
}

void attend_wide(const ops::MlaSparseArgs& args, ops::Stream& stream) {
  if (!shares_lists(args)) return absorbed::run_wide(as_absorbed(args), stream);
  DeviceArena arena(static_cast<char*>(stream.scratch()) + wide_scratch(args));
  const SharedLists shared = carve(args, arena);
  const int64_t tokens = args.out.dim(0), sharing = tokens / kSharingTokens * kSharingTokens;
  for (int64_t begin = 0; begin < sharing; begin += kTokensAtOnce)
    attend_shared(tokens_of(args, begin, std::min(begin + kTokensAtOnce, sharing)), shared, stream);
  if (sharing < tokens) absorbed::run_wide(as_absorbed(tokens_of(args, sharing, tokens)), stream);
}

// With more tokens never less, whatever the rows of a call are and wherever they come from.
int64_t mla_sparse_scratch(const ops::MlaSparseArgs& args, const ops::Stream& stream) {
  const ops::MlaAbsorbedArgs absorbed = as_absorbed(args);
  const int64_t of_fewer = mla_absorbed_scratch(absorbed, stream);
  if (!may_take_wide(absorbed, stream)) return of_fewer;
  DeviceArena arena;
  if (args.out.dim(1) == kSharingHeads) carve(args, arena);
  return std::max(of_fewer, wide_scratch(args) + arena.bytes());
}

void mla_sparse(const ops::MlaSparseArgs& args, ops::Stream& stream) {
  const ops::MlaAbsorbedArgs absorbed = as_absorbed(args);
  if (absorbed::takes_few_lists(absorbed)) return absorbed::attend_few_lists(absorbed, stream);
  const bool is_wide = args.cache.format.latent == DType::kBf16 && may_take_wide(absorbed, stream);
  is_wide ? attend_wide(args, stream) : cuda::mla_absorbed(absorbed, stream);
}

}  // namespace

void add_sparse_attention(ops::Backend& backend) {
  backend.mla_sparse = {mla_sparse, mla_sparse_scratch};
}

}  // namespace fathom::cuda
