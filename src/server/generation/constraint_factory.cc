#include "server/generation/constraint_factory.h"

namespace fathom::server {

Parsed<ConstraintPtr> ConstraintFactory::make(const GenerationRequest& request,
                                              const GenerationItem& item) {
  if (item.grammar.kind != GrammarSource::Kind::kNone ||
      request.tool_constraint.kind == ToolConstraint::Kind::kRequired) {
    return invalid_parameter("response_format", "this build has no grammars");
  }
  return ConstraintPtr();
}

}  // namespace fathom::server
