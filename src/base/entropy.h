#pragma once
// Bits that nobody can foresee, from the kernel: seeds of generators, of hashes and of ids.
//
//   Rng rng(entropy_bits());
//
// Not std::random_device: that of GCC 12 calls arc4random(), which only glibc 2.36 has, and the programs run on older
// ones. Thread-safe. Aborts where the kernel has none to give, which is before a machine has started.

#include <cstdint>

namespace fathom {

uint64_t entropy_bits();

}  // namespace fathom
