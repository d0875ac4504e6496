#include "cuda/sampling/ops.h"

namespace fathom::cuda {

void add_sampling(ops::Backend& backend) {
  backend.sample = {sample};
  backend.top_k = {top_k};
  backend.step_inputs = {step_inputs};
  backend.commit_tokens = {commit_tokens};
  backend.write_words = {write_words};
  backend.count_tokens = {count_tokens};
}

}  // namespace fathom::cuda
