#include "cuda/families.h"
#include "cuda/ops.h"

namespace fathom::cuda {

void add_sampling(ops::Backend& backend) {
  backend.sample = {sample};
  backend.step_inputs = {step_inputs};
  backend.commit_tokens = {commit_tokens};
}

}  // namespace fathom::cuda
