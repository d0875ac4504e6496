#include "ops/device_buffer.h"

#include "base/startup_error.h"

namespace fathom::ops {

void throw_no_room_for_step(const Backend& backend, int64_t bytes, const std::string& what) {
  throw StartupError("no room for " + what + ": it needs " + std::to_string(bytes) + " bytes, " +
                     std::string(backend.device) + " has " +
                     std::to_string(backend.free_memory_bytes()) +
                     " free: lower the number of running requests or the tokens of a step");
}

DeviceBuffer DeviceBuffer::allocate_for_step(const Backend& backend, int64_t bytes,
                                             const std::string& what) {
  std::optional<DeviceBuffer> buffer = allocate(backend, bytes);
  if (!buffer) throw_no_room_for_step(backend, bytes, what);
  return std::move(*buffer);
}

}  // namespace fathom::ops
