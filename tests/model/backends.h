#pragma once
// The backends that the model's tests run on, of the list in tests/backends.h.
//
//   INSTANTIATE_TEST_SUITE_P(Backends, DemoTest, testing::ValuesIn(all_backends()), backend_name);

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/backends.h"
#include "tests/sanitized.h"

namespace fathom::model {

using BackendCase = tested::ProgramBackend;
using tested::kFast;

// Under sanitizers the tests keep their paths and drop repetitions.
inline std::vector<BackendCase> all_backends() {
  if (kIsSanitized) return {kFast};
  return tested::float32_backends();
}

inline std::string backend_name(const ::testing::TestParamInfo<BackendCase>& info) {
  return info.param.name;
}

}  // namespace fathom::model
