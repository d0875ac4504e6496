#pragma once
// The backends that the operator suite runs on, and how: one entry per backend and stream configuration, of the list in
// tests/backends.h.

#include <ostream>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "tests/backends.h"

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

// Every instruction set that this machine can run; thread counts that do and do not divide the work. Those that only
// multiply otherwise than AVX-512 split the work as it does.
inline void add_fast_backends(std::vector<TestedBackend>& backends) {
  for (const cpu::Isa isa : {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512,
                             cpu::Isa::kAvx512Bf16, cpu::Isa::kAmx}) {
    if (!cpu::isa_supported(isa)) continue;
    const std::string name = "fast_" + std::string(cpu::isa_name(isa));
    const bool only_products = isa == cpu::Isa::kAvx512Bf16 || isa == cpu::Isa::kAmx;
    if (!only_products)
      backends.push_back(
          {.name = name, .backend = &cpu::fast_backend(isa), .stream = {.num_threads = 1}});
    backends.push_back({.name = name + "_3_threads",
                        .backend = &cpu::fast_backend(isa),
                        .stream = {.num_threads = 3}});
  }
}

inline std::vector<TestedBackend> tested_backends() {
  std::vector<TestedBackend> backends;
  for (const tested::ProgramBackend& each : tested::program_backends()) {
    if (&each.backend() == &cpu::fast_backend()) {
      add_fast_backends(backends);
    } else {
      backends.push_back({.name = each.name, .backend = &each.backend(), .stream = {}});
    }
  }
  return backends;
}

// Each backend once: for cases that are there for the kernels of a GPU and take the CPU long.
inline std::vector<TestedBackend> one_of_each_backend() {
  std::vector<TestedBackend> backends;
  for (const tested::ProgramBackend& each : tested::program_backends())
    backends.push_back({.name = each.name, .backend = &each.backend(), .stream = {}});
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
