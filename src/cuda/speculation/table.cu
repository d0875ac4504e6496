#include "cuda/speculation/ops.h"

namespace fathom::cuda {

void add_speculation(ops::Backend& backend) {
  backend.draft_inputs = {draft_inputs};
  backend.draft_rows = {draft_rows};
  backend.accept_drafts = {accept_drafts};
  backend.move_rows = {move_rows};
  backend.grow_drafts = {grow_drafts};
  backend.select_rows = {select_rows};
}

}  // namespace fathom::cuda
