#pragma once
// What `fathom tune` may choose from for a shape, each with what a model of costs says of it. The model counts bytes
// against the memory's speed, and rounds of blocks, lines of a block and meetings of a cluster beside it: enough to
// drop what cannot win, not to choose.
//
//   for (const SearchTask<MatrixChoice>& task : matrix_tasks(shape, {1, 8, 64, 1024}, device)) ...;
//
// Pure functions.

#include <vector>

#include "apps/tune/search.h"

namespace fathom::apps {

struct TuneDevice {
  int multiprocessors = 132;
  double gb_per_s = 4000;
  bool has_library = false;  // cuBLASLt
};

// The shape with what files do not say of it: how large its rows are, and how many experts a token takes.
struct ExpertTask {
  tuned::ExpertShape shape{};
  int64_t hidden_size = 0, num_experts_per_tok = 0;
};

// A task for each class of rows whose sums have one order, and for each number of rows otherwise.
std::vector<SearchTask<tuned::MatrixChoice>> matrix_tasks(const tuned::MatrixShape& shape,
                                                          const std::vector<int64_t>& rows,
                                                          const TuneDevice& device);
std::vector<SearchTask<tuned::ExpertChoice>> expert_tasks(const ExpertTask& experts,
                                                          const std::vector<int64_t>& rows,
                                                          const TuneDevice& device);

}  // namespace fathom::apps
