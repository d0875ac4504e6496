#include "server/generation/constraint_factory.h"

#include <utility>

namespace fathom::server {

ConstraintFactory::ConstraintFactory(Config config)
    : config_(std::move(config)), cache_(config_.max_cache_bytes) {}

Parsed<ConstraintPtr> ConstraintFactory::make(const GenerationRequest& request,
                                              const GenerationItem& item) {
  const bool has_form = item.grammar.kind != GrammarSource::Kind::kNone;
  if (has_form || request.tool_constraint.kind == ToolConstraint::Kind::kRequired) {
    return invalid_parameter("response_format", "this build holds no output to a grammar");
  }
  return ConstraintPtr();
}

}  // namespace fathom::server
