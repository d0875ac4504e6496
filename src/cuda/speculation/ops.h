#pragma once
// The operators of speculation/: drafts and their verification. Contracts: ops/<operator>.h. Shapes were checked at
// the boundary; activations are bf16.
//
//   add_speculation(backend);      // puts them into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_speculation(ops::Backend& backend);

void draft_inputs(const ops::DraftInputsArgs& args, ops::Stream& stream);
void draft_rows(const ops::DraftRowsArgs& args, ops::Stream& stream);
void accept_drafts(const ops::AcceptDraftsArgs& args, ops::Stream& stream);
void move_rows(const ops::MoveRowsArgs& args, ops::Stream& stream);
void grow_drafts(const ops::GrowDraftsArgs& args, ops::Stream& stream);
void select_rows(const ops::SelectRowsArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
