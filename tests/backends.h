#pragma once
// The one list of backends: what the tests of operators, models and runners run on is made from it, so that a new
// backend is tested everywhere.
//
//   for (const ProgramBackend& each : program_backends()) run(each.backend());

#include <vector>

#include "cpu/fast/fast_backend.h"
#include "cpu/reference/reference_backend.h"
#include "cuda/backend.h"

namespace fathom::tested {

struct ProgramBackend {
  const char* name;  // part of a test's name: letters, digits, underscores
  const ops::Backend& (*backend)();
};

inline constexpr ProgramBackend kReference = {"reference", cpu::reference_backend};
inline constexpr ProgramBackend kFast = {"fast", cpu::fast_backend};

// Those that this machine can run.
inline std::vector<ProgramBackend> program_backends() {
  std::vector<ProgramBackend> backends = {kReference, kFast};
  if (cuda::find_gpu().usable) {
    backends.push_back({"cuda", cuda::backend});
    backends.push_back({"cuda_invariant", cuda::batch_invariant_backend});
  }
  return backends;
}

// Those whose activations are float32, for tests with bounds of float32. What others round away is compared on their
// own machines (tests/gpu).
inline std::vector<ProgramBackend> float32_backends() {
  std::vector<ProgramBackend> backends = program_backends();
  std::erase_if(backends, [](const ProgramBackend& each) {
    return each.backend().act != tensor::DType::kF32;
  });
  return backends;
}

}  // namespace fathom::tested
