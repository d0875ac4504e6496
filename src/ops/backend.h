#pragma once
// The backend table: what each operator of ops/operators.inc needs and does, filled by cpu/ or cuda/ and chosen by
// apps/.
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
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::ops {

#define FATHOM_OPERATOR(name, Args, types, reference) struct Args;
#include "ops/operators.inc"
struct MlaPlanShape;

// The types that an operator takes: of its weights or cache rows, of activations where it has neither.
enum class OperatorTypes {
  kAct,           // Backend::act
  kFloat32,       // f32 on every backend (angles, scores), and act
  kPlainWeights,  // f32, bf16
  kMatrices,      // kMatrixTypes
  kHeadMatrices,  // f32, bf16, f8_e4m3
  kCacheRows,     // those of KvFormat (ops/kv_format.h)
  kIndexKeys,     // f32, f8_e4m3
};

// Of matrices, as ops/linear.h says what they hold.
inline constexpr std::initializer_list<tensor::DType> kMatrixTypes = {
    tensor::DType::kF32, tensor::DType::kBf16, tensor::DType::kF8E4M3,
    tensor::DType::kI8,  tensor::DType::kI4x2, tensor::DType::kU4x2};

// What a backend has for an operator. Calls go through ops::dispatch (ops/boundary.h).
template <class Args>
struct Operator {
  void (*run)(const Args&, Stream&) = nullptr;  // null = not provided
  // The scratch of a call, a function of shapes alone: it reads no tensor's data and does not look at the
  // number of blocks of a cache, which is chosen afterwards. Never less for more tokens. Null = none.
  int64_t (*scratch_bytes)(const Args&, const Stream&) = nullptr;
  // Calls of more tokens do without it: fused operators only. 0 = no limit.
  int64_t max_tokens = 0;
  // Whether it takes a call, by shapes, types and settings of the process: fused operators only, whose callers run the
  // parts of all others. Null = it takes all.
  bool (*takes)(const Args&, const Stream&) = nullptr;
  // Of the types that the operator takes on other backends, those that this entry does not.
  std::vector<tensor::DType> lacks{};

  // Whether there is one, and it takes this call.
  bool has(const Args& args, const Stream& stream) const {
    return run != nullptr && (takes == nullptr || takes(args, stream));
  }
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

// Where attention has other kernels: calls of fewer query tokens than this for whose query tokens there is room in
// block tables for more rows than this, the rows of each counted. 0 = it has none.
struct LongAttention {
  int64_t rows = 0, tokens = 0;
  bool of_one_sequence = false;          // a sequence's rows are counted once, not for each token
  std::string_view op = "mla_absorbed";  // whose limit this is
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
  // this type, or activations where it has neither. False for a name that no operator has.
  bool supports(std::string_view op, tensor::DType dtype) const;

#define FATHOM_OPERATOR(name, Args, types, reference) Operator<Args> name;
#include "ops/operators.inc"

  // Null = no mla_plan.
  int64_t (*mla_plan_bytes)(const MlaPlanShape& shape) = nullptr;
  std::vector<LongAttention> long_attention{};
};

// All of ops/operators.inc, in its order.
const std::vector<std::string_view>& operator_names();

// What a model needs: an operator and, where it reads weights or cache rows, their type.
struct Requirement {
  std::string_view op;
  tensor::DType dtype;
};

bool provides(const Backend& backend, const Requirement& requirement);

// A fused operator and what it stands for (ops/operators.inc).
struct FusedOperator {
  std::string_view op;
  std::vector<std::string_view> parts;
};
const std::vector<FusedOperator>& fused_operators();

// One sentence per requirement that the backend lacks: "cpu has no operator linear for f8_e4m3 on ...".
std::vector<std::string> missing_operators(const Backend& backend,
                                           const std::vector<Requirement>& requirements);

}  // namespace fathom::ops
