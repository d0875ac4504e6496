#pragma once
// The backend table: what each operator needs and does, filled by cpu/ or cuda/ and chosen by apps/.
// Callers use the functions in ops/<operator>.h, which check shapes by name and then go through the table
// of the stream they are given. An empty entry means "not provided"; missing_operators() turns that into a
// start-up error that names operator, dtype and device.
//
//   const ops::Backend& backend = cpu::fast_backend();
//   std::unique_ptr<ops::Stream> stream = backend.make_stream({.num_threads = 4});
//   ops::rms_norm({.x = x, .weight = w, .eps = 1e-6f, .out = y}, *stream);
//
// Batch invariance is part of every contract (docs/contracts/ops.md, section 4): an output row depends on
// its own inputs only, whatever other rows the call holds, and a form of attention not on prompt chunks.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::ops {

struct EmbeddingArgs;
struct GatherRowsArgs;
struct AddRowsArgs;
struct FillFromTableArgs;
struct RmsNormArgs;
struct RmsNormQuantizeArgs;
struct LinearArgs;
struct LinearPairArgs;
struct HeadLinearArgs;
struct RopeTableArgs;
struct RopeArgs;
struct KvAppendArgs;
struct KvGatherArgs;
struct MlaPlanShape;
struct MlaPlanArgs;
struct MlaAbsorbedArgs;
struct MlaExpandedArgs;
struct SiluMulArgs;
struct SiluMulQuantizeArgs;
struct MoeGateArgs;
struct MoeExpertsArgs;
struct MoeExpertsSharedArgs;
struct QuantizeFp8Args;
struct SampleArgs;
struct StepInputsArgs;
struct CommitTokensArgs;
struct WriteWordsArgs;
struct CountTokensArgs;
struct DraftInputsArgs;
struct DraftRowsArgs;
struct AcceptDraftsArgs;
struct MoveRowsArgs;
struct GrowDraftsArgs;
struct SelectRowsArgs;
struct IndexAppendArgs;
struct IndexQueryArgs;
struct IndexScoresArgs;
struct TopRowsArgs;
struct MlaSparseArgs;

// What a backend has for an operator. Calls go through ops::dispatch (ops/boundary.h).
template <class Args>
struct Operator {
  void (*run)(const Args&, Stream&) = nullptr;  // null = not provided
  // The scratch of a call, a function of shapes alone: it reads no tensor's data and does not look at the
  // number of blocks of a cache, which is chosen afterwards. Never less for more tokens. Null = none.
  int64_t (*scratch_bytes)(const Args&, const Stream&) = nullptr;
};

struct StreamConfig {
  int num_threads = 0;  // CPU: 0 = one per physical core of the process's affinity mask
};

// What suits a backend where nobody asked for anything else.
struct BackendDefaults {
  tensor::DType kv_cache_dtype = tensor::DType::kF32;
  double mem_fraction_static = 0.25;  // a CPU's memory is used by others too
  int chunked_prefill_size = 2048;
  int expand_chunk_tokens = 1024;  // rows whose keys and values are expanded at once
  int cuda_graph_max_bs = 0;       // decode steps of up to so many requests are captured; 0 = none
  // What computing prompts at all costs, in tokens of them: the first guess of what steps take (sched/step_cost.h). A
  // GPU reads weights for as long as it computes hundreds of tokens.
  int step_start_tokens = 8;
};

// Where mla_absorbed has other kernels: calls of fewer query tokens than this for whose query tokens there is room in
// block tables for more rows than this, the rows of each counted. 0 = it has none.
struct LongAttention {
  int64_t rows = 0, tokens = 0;
};

struct Backend {
  std::string_view name;    // "cpu-reference", "cpu", "cuda"
  std::string_view device;  // what it runs on, for people: "AVX-512 CPU, 4 threads"

  // From here on what the calling thread allocates, copies and runs lies on this of the backend's devices. Null = it
  // has device 0 alone. Threads begin with device 0.
  void (*use_device)(int device) = nullptr;
  // Which of the backend's devices allocate() gave the memory on. Null = on device 0.
  int (*device_of)(const void* data) = nullptr;
  // Whether allocate() gives memory that the host cannot touch.
  bool device_memory = false;
  // Device memory, 256-byte aligned. allocate() returns null when there is no room.
  void* (*allocate)(int64_t bytes) = nullptr;
  void (*deallocate)(void* data) = nullptr;
  int64_t (*free_memory_bytes)() = nullptr;
  // Measured now, in 1e9 bytes per second; the CPU's with so many threads. Null = the backend is not for speed.
  double (*read_bandwidth_gb_s)(int num_threads) = nullptr;
  // Host memory that copies reach without a detour; null when there is no room.
  void* (*allocate_host)(int64_t bytes) = nullptr;
  void (*deallocate_host)(void* data) = nullptr;
  // Host to device and back, ordered in the stream. The host memory must stay until synchronize().
  void (*copy_to_device)(void* device, const void* host, int64_t bytes, Stream& stream) = nullptr;
  void (*copy_to_host)(void* host, const void* device, int64_t bytes, Stream& stream) = nullptr;
  std::unique_ptr<Stream> (*make_stream)(const StreamConfig& config) = nullptr;
  BackendDefaults defaults{};
  // Whether any row's answer is independent of its call, or only among calls of one class of sizes
  // (docs/contracts/ops.md, section 4).
  bool batch_invariant = true;

  // The type of activations ("act" in the contracts): f32 on the CPU, bf16 on CUDA.
  tensor::DType act = tensor::DType::kF32;
  // Whether an operator takes weights (linear, head_linear, moe_experts) or cache rows (kv_append, ...) of
  // this type.
  bool (*supports)(std::string_view op, tensor::DType dtype) = nullptr;

  Operator<EmbeddingArgs> embedding;
  Operator<GatherRowsArgs> gather_rows;
  Operator<AddRowsArgs> add_rows;
  Operator<RmsNormArgs> rms_norm;
  Operator<LinearArgs> linear;
  Operator<HeadLinearArgs> head_linear;
  Operator<RopeTableArgs> rope_table;
  Operator<RopeArgs> rope;
  Operator<KvAppendArgs> kv_append;
  Operator<KvGatherArgs> kv_gather;
  Operator<MlaAbsorbedArgs> mla_absorbed;
  Operator<MlaExpandedArgs> mla_expanded;
  Operator<SiluMulArgs> silu_mul;
  Operator<MoeGateArgs> moe_gate;
  Operator<MoeExpertsArgs> moe_experts;
  Operator<QuantizeFp8Args> quantize_fp8;

  // Of weights that are made instead of loaded.
  Operator<FillFromTableArgs> fill_from_table;

  // Fused operators, each the equal of its parts (fused_operators()): what a backend has of them, the layers
  // run instead of the parts. Every backend has the parts.
  Operator<RmsNormQuantizeArgs> rms_norm_quantize;
  Operator<SiluMulQuantizeArgs> silu_mul_quantize;
  Operator<LinearPairArgs> linear_pair;
  Operator<MoeExpertsSharedArgs> moe_experts_shared;
  int64_t moe_experts_shared_max_tokens = 0;  // more tokens take the parts; 0 = no limit
  // What absorbed attention decides once per step instead of in every layer. Both entries or none.
  Operator<MlaPlanArgs> mla_plan;
  int64_t (*mla_plan_bytes)(const MlaPlanShape& shape) = nullptr;
  LongAttention long_attention{};

  Operator<SampleArgs> sample;
  Operator<StepInputsArgs> step_inputs;
  Operator<CommitTokensArgs> commit_tokens;
  Operator<WriteWordsArgs> write_words;
  Operator<CountTokensArgs> count_tokens;

  // Of a runner that speculates.
  Operator<DraftInputsArgs> draft_inputs;
  Operator<DraftRowsArgs> draft_rows;
  Operator<AcceptDraftsArgs> accept_drafts;
  Operator<MoveRowsArgs> move_rows;
  Operator<GrowDraftsArgs> grow_drafts;
  Operator<SelectRowsArgs> select_rows;

  // Of models with an indexer (ops/index.h).
  Operator<IndexAppendArgs> index_append;
  Operator<IndexQueryArgs> index_query;
  Operator<IndexScoresArgs> index_scores;
  Operator<TopRowsArgs> top_rows;
  Operator<MlaSparseArgs> mla_sparse;
};

// What a model needs: an operator and, where it reads weights or cache rows, their type.
struct Requirement {
  std::string_view op;
  tensor::DType dtype;
};

bool provides(const Backend& backend, const Requirement& requirement);

// A fused operator and what it stands for, in order. Parts whose work an operator does anyway (the
// quantisation inside a linear with f8 weights) are named too.
struct FusedOperator {
  std::string_view op;
  std::vector<std::string_view> parts;
};
const std::vector<FusedOperator>& fused_operators();

// One sentence per requirement that the backend lacks: "cpu has no operator linear for f8_e4m3 on ...".
std::vector<std::string> missing_operators(const Backend& backend,
                                           const std::vector<Requirement>& requirements);

}  // namespace fathom::ops
