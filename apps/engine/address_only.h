#pragma once
// A backend whose memory is address space without anything behind it: a model can lay out its weights on it,
// and be compared with a checkpoint of any size or be measured, on any machine. Nothing may be read or written.
//
//   const ops::Backend backend = address_only(cpu::fast_backend());
//   const auto model = model::Model::create(config, options, backend);
//
// Not thread-safe: one thread creates and destroys such models.

#include "ops/backend.h"

namespace fathom::apps {

ops::Backend address_only(const ops::Backend& backend);

}  // namespace fathom::apps
