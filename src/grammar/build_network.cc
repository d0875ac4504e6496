#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/front_ends.h"
#include "grammar/expressions/text_search.h"
#include "grammar/network.h"
#include "grammar/schema/dsml_form.h"
#include "grammar/schema/front_ends.h"

namespace fathom::grammar {
namespace {

using Edge = Network::Edge;
using Kind = Expression::Node::Kind;

class Builder {
 public:
  Builder(RuleSet& rules, Network& network)
      : rules_(rules), budget_(rules.budget()), network_(network) {}

  void add_rule(const Expression* expression) {
    Network::Rule rule;
    rule.first_state = static_cast<int32_t>(network_.edges.size());
    rule.start = new_state();
    rule.end = new_state();
    if (expression != nullptr) add(*expression, rule.start, rule.end);
    rule.last_state = static_cast<int32_t>(network_.edges.size());
    network_.rules.push_back(rule);
  }

 private:
  int32_t new_state() {
    network_.edges.emplace_back();
    budget_.charge(8);
    budget_.charge_memory(sizeof(decltype(network_.edges)::value_type));
    const int max_states = budget_.limits().max_states;
    if (network_.edges.size() > static_cast<size_t>(max_states)) {
      budget_.fail({ErrorCode::kTooLong, "the grammar needs more than " +
                                             std::to_string(max_states) + " states, simplify it"});
    }
    return static_cast<int32_t>(network_.edges.size()) - 1;
  }
  void add_edge(int32_t from, const Edge& edge) {
    network_.edges[static_cast<size_t>(from)].push_back(edge);
    budget_.charge(4);
    budget_.charge_memory(sizeof(Edge));
  }
  void connect(int32_t from, int32_t to) {
    add_edge(from, {.kind = Edge::Kind::kNothing, .target = to});
  }
  void read(int32_t from, uint8_t first, uint8_t last, int32_t to) {
    add_edge(from, {.kind = Edge::Kind::kByte, .first = first, .last = last, .target = to});
  }

  // A path for everything that fits the expression. Depth of the recursion: that of the expression, which
  // the front ends bound.
  void add(const Expression& expression, int32_t from, int32_t to) {
    if (!budget_.charge(1)) return;
    const Expression::Node& node = expression.node();
    switch (node.kind) {
      case Kind::kLiteral:
        return add_literal(node.text, from, to);
      case Kind::kCharacter:
        return add_character(node, from, to);
      case Kind::kSequence:
        return add_sequence(node, from, to);
      case Kind::kChoice:
        // No part leads back to `from`: parts that begin alike may share it.
        for (const Expression& part : node.parts) add(part, from, to);
        return;
      case Kind::kRepeat:
        return add_repeat(node, from, to);
      case Kind::kMembers:
        return add_members(node, from, to);
      case Kind::kGraph:
        return add_graph(node, from, to);
      case Kind::kToken:
        return add_edge(from, {.kind = Edge::Kind::kToken, .label = node.number, .target = to});
      case Kind::kFreeText:
        return add_free_text(node, from, to);
      case Kind::kLook:
        budget_.fail({ErrorCode::kInternal, "look-around outside of a pattern"});
        return;
      case Kind::kMistake:
        budget_.fail(invalid_argument(node.text));
        return;
      case Kind::kRule:
        return add_edge(from, {.kind = Edge::Kind::kCall, .label = node.number, .target = to});
      case Kind::kJsonObject:
      case Kind::kJsonSchema:
      case Kind::kRegex:
      case Kind::kEbnf:
      case Kind::kLark:
      case Kind::kJsonMember:
      case Kind::kDsmlParameters:
        return add_edge(from,
                        {.kind = Edge::Kind::kCall, .label = rule_of(expression), .target = to});
    }
  }

  // Source text is read once, however often the expression stands in the tree.
  int rule_of(const Expression& expression) {
    const auto [known, is_new] = source_rules_.try_emplace(&expression.node(), 0);
    if (is_new) known->second = rules_.add(lower(expression.node()));
    return known->second;
  }

  Expression lower(const Expression::Node& node) {
    if (node.kind == Kind::kJsonSchema) return lower_json_schema(node.text, *node.style, rules_);
    if (node.kind == Kind::kRegex) return lower_regex(node.text, rules_);
    if (node.kind == Kind::kEbnf) return lower_ebnf(node, rules_);
    if (node.kind == Kind::kLark) return lower_lark(node, rules_);
    if (node.kind == Kind::kJsonMember) return lower_json_member(node.text, node.parts[0], rules_);
    if (node.kind == Kind::kDsmlParameters)
      return lower_dsml_parameters(node.text, node.markers[0], *node.style, rules_);
    return lower_json_object(*node.style, rules_);
  }

  void add_literal(const std::string& text, int32_t from, int32_t to) {
    if (text.empty()) return connect(from, to);
    for (size_t i = 0; i < text.size() && budget_.ok(); ++i) {
      const int32_t next = i + 1 == text.size() ? to : new_state();
      const auto byte = static_cast<uint8_t>(text[i]);
      read(from, byte, byte, next);
      from = next;
    }
  }

  void add_character(const Expression::Node& node, int32_t from, int32_t to) {
    for (const Utf8Range& range : utf8_ranges(node.ranges)) {
      int32_t at = from;
      for (int i = 0; i < range.length; ++i) {
        const int32_t next = i + 1 == range.length ? to : new_state();
        const auto bytes = range.bytes[static_cast<size_t>(i)];
        read(at, bytes.first, bytes.last, next);
        at = next;
      }
      if (!budget_.ok()) return;
    }
  }

  void add_sequence(const Expression::Node& node, int32_t from, int32_t to) {
    for (const Expression& part : node.parts) {
      const int32_t next = new_state();
      add(part, from, next);
      if (!budget_.ok()) return;
      from = next;
    }
    connect(from, to);
  }

  void add_repeat(const Expression::Node& node, int32_t from, int32_t to) {
    const Expression& part = node.parts[0];
    for (int i = 0; i < node.min && budget_.ok(); ++i) {
      const int32_t next = new_state();
      add(part, from, next);
      from = next;
    }
    if (node.max == kUnbounded) {
      // A state of its own: `from` may have other edges that must not be repeated.
      const int32_t loop = new_state(), again = new_state();
      connect(from, loop);
      add(part, loop, again);
      connect(again, loop);
      return connect(loop, to);
    }
    for (int i = node.min; i < node.max && budget_.ok(); ++i) {
      const int32_t begin = new_state(), next = new_state();
      connect(from, to);
      connect(from, begin);
      add(part, begin, next);
      from = next;
    }
    connect(from, to);
  }

  // Two chains, "nothing written yet" and "something written", share each member's path.
  void add_members(const Expression::Node& node, int32_t from, int32_t to) {
    int32_t nothing = new_state(), something = new_state();
    connect(from, nothing);
    bool may_be_nothing = true;
    const Expression& separator = node.parts.back();
    for (size_t i = 0; i + 1 < node.parts.size() && budget_.ok(); ++i) {
      const int32_t begin = new_state(), written = new_state();
      const int32_t next_nothing = new_state(), next_something = new_state();
      if (may_be_nothing) connect(nothing, begin);
      if (i > 0) add(separator, something, begin);
      add(node.parts[i], begin, written);
      connect(written, next_something);
      if (!node.required[i]) {
        connect(nothing, next_nothing);
        connect(something, next_something);
      } else {
        may_be_nothing = false;
      }
      nothing = next_nothing;
      something = next_something;
    }
    if (may_be_nothing) connect(nothing, to);
    connect(something, to);
  }

  void add_graph(const Expression::Node& node, int32_t from, int32_t to) {
    std::vector<int32_t> states(static_cast<size_t>(node.number));
    for (size_t i = 0; i < states.size() && budget_.ok(); ++i) states[i] = new_state();
    if (!budget_.ok() || states.empty()) return;
    connect(from, states[0]);
    for (size_t i = 0; i < node.parts.size() && budget_.ok(); ++i) {
      const auto& [source, target] = node.links[i];
      add(node.parts[i], states[static_cast<size_t>(source)], states[static_cast<size_t>(target)]);
    }
    for (const int end : node.ends) connect(states[static_cast<size_t>(end)], to);
  }

  // Every state of the search for triggers and forbidden texts is a state of the free part.
  void add_free_text(const Expression::Node& node, int32_t from, int32_t to) {
    const int num_forbidden = static_cast<int>(node.texts.size());
    std::vector<std::string> texts = node.texts;
    for (const Marker& marker : node.markers) texts.push_back(marker.text);
    const TextSearch search(texts, budget_);
    std::vector<int32_t> states(static_cast<size_t>(search.num_states())),
        behind(node.markers.size());
    for (int32_t& state : states) state = budget_.ok() ? new_state() : 0;
    for (int32_t& state : behind) state = budget_.ok() ? new_state() : 0;
    if (!budget_.ok()) return;
    connect(from, states[0]);
    for (size_t i = 0; i < behind.size() && budget_.ok(); ++i) {
      add(node.parts[i], behind[i], node.required[i] ? to : states[0]);
    }
    // Where a state of the search is in the network; -1: nowhere, as a text is complete that may not be.
    const auto place_of = [&](int state) -> int32_t {
      const int found = search.found(state);
      if (found == TextSearch::kNone) return states[static_cast<size_t>(state)];
      const auto trigger = static_cast<size_t>(std::max(found - num_forbidden, 0));
      const bool is_pulled = found >= num_forbidden && node.markers[trigger].token < 0;
      return is_pulled ? behind[trigger] : -1;
    };
    for (int state = 0; state < search.num_states() && budget_.ok(); ++state) {
      if (search.found(state) != TextSearch::kNone) continue;
      const int32_t at = states[static_cast<size_t>(state)];
      for (size_t first = 0, last = 0; first < 256; first = last + 1) {
        last = first;
        const int next = search.next(state, static_cast<uint8_t>(first));
        while (last < 255 && search.next(state, static_cast<uint8_t>(last + 1)) == next) ++last;
        const int32_t target = place_of(next);
        if (target >= 0) read(at, static_cast<uint8_t>(first), static_cast<uint8_t>(last), target);
      }
      for (size_t i = 0; i < behind.size(); ++i) {
        if (node.markers[i].token < 0) continue;
        add_edge(at,
                 {.kind = Edge::Kind::kToken, .label = node.markers[i].token, .target = behind[i]});
      }
      if (node.number != 0) connect(at, to);
    }
  }

  RuleSet& rules_;
  Budget& budget_;
  Network& network_;
  std::map<const Expression::Node*, int> source_rules_;
};

}  // namespace

Network build_network(const Expression& root, RuleSet& rules) {
  Network network;
  Builder builder(rules, network);
  network.root = rules.add(root);
  // Front ends add rules while rules are built. A copy: the set may move its rules meanwhile.
  for (int idx = 0; idx < rules.size() && rules.budget().ok(); ++idx) {
    std::optional<Expression> expression = rules[idx];
    builder.add_rule(expression.has_value() ? &*expression : nullptr);
  }
  return network;
}

}  // namespace fathom::grammar
