#include "cuda/cache/ops.h"

namespace fathom::cuda {

void add_cache(ops::Backend& backend) {
  backend.rope_table = {rope_table};
  backend.rope = {rope};
  backend.kv_append = {kv_append};
  backend.kv_gather = {kv_gather};
}

}  // namespace fathom::cuda
