#include "base/entropy.h"

#include <sys/random.h>

#include <cerrno>

#include "base/check.h"

namespace fathom {

uint64_t entropy_bits() {
  uint64_t bits = 0;
  ssize_t read = 0;
  // Up to 256 bytes come at once; a signal can only interrupt the wait for the first of a machine's life.
  do {
    read = getrandom(&bits, sizeof bits, 0);
  } while (read < 0 && errno == EINTR);
  FATHOM_CHECK(read == ssize_t{sizeof bits}, "getrandom() gave " << read << ", errno " << errno);
  return bits;
}

}  // namespace fathom
