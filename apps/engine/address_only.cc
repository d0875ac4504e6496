#include "apps/engine/address_only.h"

#include <sys/mman.h>

#include <vector>

namespace fathom::apps {
namespace {

// The sizes of the buffers are needed to unmap them.
struct Reservation {
  void* address = nullptr;
  int64_t bytes = 0;
};
std::vector<Reservation>& reservations() {
  static std::vector<Reservation> list;
  return list;
}

void* reserve_addresses(int64_t bytes) {
  void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  reservations().push_back({address, bytes});
  return address;
}

void release_addresses(void* address) {
  std::erase_if(reservations(), [address](const Reservation& reservation) {
    if (reservation.address != address) return false;
    munmap(address, static_cast<size_t>(reservation.bytes));
    return true;
  });
}

}  // namespace

ops::Backend address_only(const ops::Backend& backend) {
  ops::Backend copy = backend;
  copy.allocate = &reserve_addresses;
  copy.deallocate = &release_addresses;
  return copy;
}

}  // namespace fathom::apps
