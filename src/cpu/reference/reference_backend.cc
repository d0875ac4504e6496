#include "cpu/reference/reference_backend.h"

#include "cpu/memory.h"
#include "cpu/reference/ops.h"
#include "cpu/stream.h"

namespace fathom::cpu {
namespace {

std::unique_ptr<ops::Stream> make_stream(const ops::StreamConfig&) {
  return std::make_unique<CpuStream>(reference_backend());
}

ops::Backend make_backend() {
  ops::Backend backend;
  backend.name = "cpu-reference";
  backend.device = "CPU, 1 thread";
  backend.allocate = allocate;
  backend.deallocate = deallocate;
  backend.allocate_host = allocate;
  backend.deallocate_host = deallocate;
  backend.free_memory_bytes = free_memory_bytes;
  backend.copy_to_device = copy_to_device;
  backend.copy_to_host = copy_to_host;
  backend.make_stream = make_stream;
  backend.act = tensor::DType::kF32;
#define FATHOM_REFERENCE_none(name)
#define FATHOM_REFERENCE_run(name) backend.name = {reference::name};
#define FATHOM_REFERENCE_scratch(name) backend.name = {reference::name, reference::name##_scratch};
#define FATHOM_OPERATOR(name, Args, types, reference) FATHOM_REFERENCE_##reference(name)
#include "ops/operators.inc"
  return backend;
}

}  // namespace

const ops::Backend& reference_backend() {
  static const ops::Backend backend = make_backend();
  return backend;
}

}  // namespace fathom::cpu
