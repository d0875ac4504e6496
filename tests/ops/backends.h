#pragma once
// The backends that the operator suite runs on, and how: one entry per backend and stream configuration.

#include <ostream>
#include <string>
#include <vector>

#include "cpu/fast/fast_backend.h"
#include "cpu/reference/reference_backend.h"
#include "cuda/backend.h"
#include "ops/backend.h"

namespace fathom::ops_test {

struct TestedBackend {
  std::string name;  // part of the test name: letters, digits, underscores
  const ops::Backend* backend = nullptr;
  ops::StreamConfig stream;
};

// What GoogleTest prints for GetParam().
inline void PrintTo(const TestedBackend& tested, std::ostream* out) { *out << tested.name; }

inline TestedBackend reference_backend() {
  return {.name = "reference", .backend = &cpu::reference_backend(), .stream = {}};
}

inline std::vector<TestedBackend> tested_backends() {
  std::vector<TestedBackend> backends = {reference_backend()};
  // Every instruction set that this machine can run; thread counts that do and do not divide the work.
  for (const cpu::Isa isa : {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (!cpu::isa_supported(isa)) continue;
    const std::string name = "fast_" + std::string(cpu::isa_name(isa));
    backends.push_back(
        {.name = name, .backend = &cpu::fast_backend(isa), .stream = {.num_threads = 1}});
    backends.push_back({.name = name + "_3_threads",
                        .backend = &cpu::fast_backend(isa),
                        .stream = {.num_threads = 3}});
  }
  // Both tables of the GPU, where there is one.
  if (cuda::find_gpu().usable) {
    backends.push_back({.name = "cuda", .backend = &cuda::backend(), .stream = {}});
    backends.push_back(
        {.name = "cuda_invariant", .backend = &cuda::batch_invariant_backend(), .stream = {}});
  }
  return backends;
}

// Those whose table has this operator, for the tests of a fused one: on the others there is nothing to test.
template <class Entry>
std::vector<TestedBackend> backends_with(Entry ops::Backend::*entry) {
  std::vector<TestedBackend> backends = tested_backends();
  std::erase_if(backends, [&](const TestedBackend& tested) {
    return (tested.backend->*entry).run == nullptr;
  });
  return backends;
}

}  // namespace fathom::ops_test
