#include "cpu/stream.h"

#include "cpu/memory.h"

namespace fathom::cpu {

CpuStream::~CpuStream() { deallocate(memory_); }

void CpuStream::touch(void* data, int64_t bytes) { touch_pages(data, bytes); }

void* CpuStream::allocate_scratch(int64_t bytes) {
  deallocate(memory_);
  memory_ = allocate(bytes);
  return memory_;
}

}  // namespace fathom::cpu
