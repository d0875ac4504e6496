#include "grammar/expressions/expression.h"

#include <utility>

#include "base/check.h"
#include "grammar/expressions/code_points.h"
#include "grammar/expressions/lark_lexer.h"

namespace fathom::grammar {
namespace {

using Kind = Expression::Node::Kind;

Expression make(Expression::Node node) {
  return Expression(std::make_shared<const Expression::Node>(std::move(node)));
}

std::shared_ptr<const TokenLookup> shared(TokenLookup tokens) {
  return tokens ? std::make_shared<const TokenLookup>(std::move(tokens)) : nullptr;
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

Expression members(std::vector<Member> parts, Expression separator) {
  Expression::Node node = {.kind = Kind::kMembers};
  for (Member& member : parts) {
    node.parts.push_back(std::move(member.expression));
    node.required.push_back(member.required);
  }
  node.parts.push_back(std::move(separator));
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

Expression free_text(FreeText text) {
  Expression::Node node = {
      .kind = Kind::kFreeText, .texts = std::move(text.forbidden), .number = text.may_end ? 1 : 0};
  for (const std::string& forbidden : node.texts)
    FATHOM_CHECK(!forbidden.empty(), "an empty forbidden text");
  for (Trigger& trigger : text.triggers) {
    FATHOM_CHECK(!trigger.marker.text.empty(), "an empty trigger");
    node.markers.push_back(std::move(trigger.marker));
    node.parts.push_back(std::move(trigger.then));
    node.required.push_back(trigger.ends);
  }
  return make(std::move(node));
}

Expression any_text(const std::string& forbidden) {
  if (forbidden.empty()) return free_text({});
  return free_text({.forbidden = {forbidden}});
}

Expression text_until(const Marker& marker) {
  return free_text(
      {.triggers = {{.marker = marker, .then = literal(""), .ends = true}}, .may_end = false});
}

Expression rule(int rule_idx) { return make({.kind = Kind::kRule, .number = rule_idx}); }

Expression json_object(JsonStyle style) {
  return make(
      {.kind = Kind::kJsonObject, .style = std::make_shared<const JsonStyle>(std::move(style))});
}

Expression json_schema(std::string schema, JsonStyle style) {
  return make({.kind = Kind::kJsonSchema,
               .text = std::move(schema),
               .style = std::make_shared<const JsonStyle>(std::move(style))});
}

Expression regex(std::string pattern) {
  return make({.kind = Kind::kRegex, .text = std::move(pattern)});
}

Expression look(Expression text, Look kind) {
  return make(
      {.kind = Kind::kLook, .parts = {std::move(text)}, .number = static_cast<int32_t>(kind)});
}

Expression ebnf(std::string rules, TokenLookup tokens) {
  return make({.kind = Kind::kEbnf, .text = std::move(rules), .tokens = shared(std::move(tokens))});
}

Expression lark(std::string rules, TokenLookup tokens) {
  return make({.kind = Kind::kLark, .text = std::move(rules), .tokens = shared(std::move(tokens))});
}

Expression rules_text(std::string rules, TokenLookup tokens) {
  return is_lark(rules) ? lark(std::move(rules), std::move(tokens))
                        : ebnf(std::move(rules), std::move(tokens));
}

Expression json_text_member(std::string name, Expression text) {
  return make({.kind = Kind::kJsonMember, .text = std::move(name), .parts = {std::move(text)}});
}

Expression dsml_parameters(std::string schema, Marker mark, JsonStyle style) {
  return make({.kind = Kind::kDsmlParameters,
               .text = std::move(schema),
               .markers = {std::move(mark)},
               .style = std::make_shared<const JsonStyle>(std::move(style))});
}

Expression mistake(std::string sentence) {
  return make({.kind = Kind::kMistake, .text = std::move(sentence)});
}

}  // namespace fathom::grammar
