// Attention of a few tokens of up to 16 heads to lists of at most 2,048 rows in f8, the published number, with the
// bits of mla_absorbed.cu.
//
// A cluster of 16 blocks has a token, a block 128 rows of its list (few_lists.cuh). Blocks of each chunk of 1,024 merge
// as those of mla_absorbed.cu do, and those with the second chunk send their sums to the others, which wait for the
// bytes.
//
// Bound by latency: the list, its rows, then scores, softmax and values once each, and two exchanges.
// Grid: 16 * tokens. Shared memory: 147 KB.

#include "cuda/attention/sparse/few_lists.cuh"

#include "cuda/attention/absorbed_merge.cuh"
#include "cuda/attention/choice.h"
#include "cuda/attention/sparse/few_lists.h"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

constexpr int kListBlocks = static_cast<int>(kTwoChunkRows) / kSplitRows;

struct FewLists {
  using Layout = ListLayout;
  const AbsorbedParams& p;  // a token of each sequence; tables are the lists, of blocks of one row
  const int list_width;
  char* const shared;
  const int rank, token, chunk, slice, first_entry;

  __device__ __forceinline__ FewLists(const AbsorbedParams& params, int width, char* bytes)
      : p(params),
        list_width(width),
        shared(bytes),
        rank(static_cast<int>(blockIdx.x) % kListBlocks),
        token(static_cast<int>(blockIdx.x) / kListBlocks),
        chunk(rank / kCluster),
        slice(rank % kCluster),
        first_entry(rank * kSplitRows) {}

  __device__ __forceinline__ uint32_t sums_came() const {
    return shared_address(shared + Layout::kBarrier);
  }
  // Of all of the token's heads and as many rows.
  __device__ __forceinline__ QueryGroup group(int rows) const {
    QueryGroup group;
    group.seq = group.first_token = token;
    group.num_tokens = group.num_queries = 1;
    group.num_heads = p.heads;
    group.kv_len = rows;
    return group;
  }

  // The block's rows, asked for together with the length; the queries are on their way. Returns the list's length.
  __device__ __forceinline__ int load_list() const {
    const int i = static_cast<int>(threadIdx.x), entry = first_entry + i;
    const bool may_exist = i < kSplitRows && entry < list_width;
    const int32_t kv_row = may_exist ? p.block_tables[token * p.table_stride + entry] : -1;
    const int length = p.kv_len[token];
    load_queries<Layout>(p, group(length), shared, i);
    commit_copies();
    if (i < kSplitRows)
      reinterpret_cast<int32_t*>(shared + Layout::kKvRows)[i] = entry < length ? kv_row : -1;
    return length;
  }

  // Over the queries, which are done with: a thread's sums of the second chunk.
  __device__ __forceinline__ float4* sent_values() const {
    return reinterpret_cast<float4*>(shared + Layout::kQuery) + threadIdx.x;
  }
  __device__ __forceinline__ float2* sent_stats() const {
    return reinterpret_cast<float2*>(shared + Layout::kQuery + kThreads * sizeof(float4)) +
           threadIdx.x;
  }
  __device__ __forceinline__ void send(const SliceSum<1>& sum) const {
    const float4 v = sum.vector(0);
    const auto to = static_cast<uint32_t>(slice);
    send_four(
        shared_address(sent_values()), sums_came(), to,
        {__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)});
    send_two(shared_address(sent_stats()), sums_came(), to, sum.stats(0));
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      barrier_init(sums_came(), 1);
      barriers_are_ready();
      if (chunk == 0) barrier_expect(sums_came(), kThreads * int{sizeof(float4) + sizeof(float2)});
    }
    __syncwarp();
    wait_for_previous();
    const int length = load_list();
    SliceSum<1> total;
    total.clear();
    if (length == 0) {  // padding
      total.merged[0].sum = 1.0f;
      if (chunk == 0) total.write(p, group(0), slice);
      return wait_copies<0>();
    }
    __syncthreads();
    const int num_rows = min(length - first_entry, kSplitRows);
    if (num_rows == kSplitRows)
      attend_list<true>(p, kSplitRows, shared);
    else
      attend_list<false>(p, num_rows, shared);
    cluster_sync();  // which the barriers above are ready for, too
    SliceSum<1> sum;
    sum.clear();
    merge_splits<1, Layout>(slice, shared, sum, chunk * kCluster);
    if (chunk == 1) send(sum);
    cluster_arrive();  // it reads nobody's memory any more
    if (chunk == 0) {
      total.add(0, sum.stats(0), sum.vector(0));
      barrier_wait(sums_came(), 0);
      total.add(0, *sent_stats(), *sent_values());
      __syncwarp();
      total.write(p, group(length), slice);
      __syncwarp();
    }
    cluster_wait();
  }
};

__global__ void __launch_bounds__(kThreads, 2)
    few_lists_kernel(const __grid_constant__ AbsorbedParams p, int list_width) {
  extern __shared__ __align__(128) char few_lists_shared[];
  let_next_start();
  FewLists(p, list_width, few_lists_shared).run();
}

}  // namespace

bool takes_few_lists(const ops::MlaAbsorbedArgs& args) {
  return takes_tuned_attention() && can_run(args) && args.out.dim(0) <= kMostTwoChunks &&
         args.out.dim(1) <= ListLayout::kRows && args.cache.block_tokens() == 1 &&
         args.block_tables.dim(1) <= kTwoChunkRows &&
         args.cache.format.latent == tensor::DType::kF8E4M3;
}

void attend_few_lists(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  const AbsorbedParams p = absorbed_params(args);
  launch(few_lists_kernel,
         {.grid = static_cast<unsigned>(p.tokens * kListBlocks),
          .block = kThreads,
          .shared_bytes = ListLayout::kBytes,
          .cluster = kListBlocks},
         stream, p, static_cast<int>(args.block_tables.dim(1)));
}

}  // namespace fathom::cuda::absorbed
