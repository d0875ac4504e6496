#include "grammar/expression.h"

#include <utility>

#include "base/check.h"
#include "grammar/code_points.h"

namespace fathom::grammar {
namespace {

using Kind = Expression::Node::Kind;

Expression make(Expression::Node node) {
  return Expression(std::make_shared<const Expression::Node>(std::move(node)));
}

}  // namespace

Expression literal(std::string bytes) {
  return make({.kind = Kind::kLiteral, .text = std::move(bytes)});
}

Expression character(std::vector<CodePointRange> ranges, bool negated) {
  return make({.kind = Kind::kCharacter,
               .ranges = negated ? complement(std::move(ranges)) : normalized(std::move(ranges))});
}

Expression sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return parts[0];
  return make({.kind = Kind::kSequence, .parts = std::move(parts)});
}

Expression choice(std::vector<Expression> parts) {
  if (parts.size() == 1) return parts[0];
  return make({.kind = Kind::kChoice, .parts = std::move(parts)});
}

Expression repeat(Expression part, int min, int max) {
  FATHOM_CHECK(0 <= min && min <= max, "repeat from " << min << " to " << max);
  return make({.kind = Kind::kRepeat, .parts = {std::move(part)}, .min = min, .max = max});
}

Expression optional(Expression part) { return repeat(std::move(part), 0, 1); }

Expression members(std::vector<Member> parts, std::string separator) {
  Expression::Node node = {.kind = Kind::kMembers, .text = std::move(separator)};
  for (Member& member : parts) {
    node.parts.push_back(std::move(member.expression));
    node.required.push_back(member.required);
  }
  return make(std::move(node));
}

Expression graph(std::vector<GraphEdge> edges, std::vector<int> ends, int num_states) {
  Expression::Node node = {.kind = Kind::kGraph, .ends = std::move(ends), .number = num_states};
  for (GraphEdge& edge : edges) {
    FATHOM_CHECK(edge.from < num_states && edge.to < num_states,
                 "edge from " << edge.from << " to " << edge.to << " of " << num_states);
    node.links.emplace_back(edge.from, edge.to);
    node.parts.push_back(std::move(edge.label));
  }
  return make(std::move(node));
}

Expression token(int32_t id) { return make({.kind = Kind::kToken, .number = id}); }

Expression marker(const Marker& marker) {
  return marker.token >= 0 ? token(marker.token) : literal(marker.text);
}

Expression any_text(std::string forbidden) {
  return make({.kind = Kind::kAnyText, .text = std::move(forbidden)});
}

Expression text_until(const Marker& marker) {
  if (marker.token >= 0) return sequence({any_text(marker.text), token(marker.token)});
  return make({.kind = Kind::kUntilText, .text = marker.text});
}

Expression rule(int rule_idx) { return make({.kind = Kind::kRule, .number = rule_idx}); }

Expression json_object() { return make({.kind = Kind::kJsonObject}); }

Expression json_schema(std::string schema) {
  return make({.kind = Kind::kJsonSchema, .text = std::move(schema)});
}

Expression regex(std::string pattern) {
  return make({.kind = Kind::kRegex, .text = std::move(pattern)});
}

Expression ebnf(std::string rules) { return make({.kind = Kind::kEbnf, .text = std::move(rules)}); }

}  // namespace fathom::grammar
