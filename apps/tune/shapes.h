#pragma once
// The shapes that kernels are tuned for: every matrix of a model's layers, as a rank of so many has it, and its
// experts.
//
//   for (const ModelMatrix& matrix : model_matrices(config, types, /*tp_size=*/8)) print(matrix.name, matrix.shape.n);
//
// A matrix that a rank cannot have a whole part of is left out. Pure functions.

#include <optional>
#include <string>
#include <vector>

#include "apps/tune/candidates.h"
#include "config/model_config.h"
#include "layers/fused_ops.h"

namespace fathom::apps {

struct ModelMatrix {
  std::string name;  // "o_proj"
  tuned::MatrixShape shape{};
  // Its steps have so many rows. Matrices that share their rows run in pairs up to kMaxBatchRows, each divided by the
  // rule.
  int64_t min_rows = 1, max_rows = int64_t{1} << 40;

  bool has_rows(int64_t rows) const { return rows >= min_rows && rows <= max_rows; }
};

std::vector<ModelMatrix> model_matrices(const config::ModelConfig& config,
                                        const layers::WeightTypes& types, int tp_size);
// None: the model has no experts, or of a type that nothing is tuned for.
std::optional<ExpertTask> model_experts(const config::ModelConfig& config,
                                        const layers::WeightTypes& types, int tp_size);

}  // namespace fathom::apps
