#pragma once
// Expression: what an output may look like, as a small immutable tree. The combinators build it, compile()
// (grammar/grammar.h) turns it into something that masks tokens. Front ends (JSON schema, regex, EBNF, Lark) are
// leaves that hold their source; mistakes in it are reported by compile().
//
//   // free thinking, then JSON
//   Expression answer = sequence({text_until({.text = "</think>", .token = think_end}),
//                                 json_schema(schema_text)});
//   // one of two words
//   Expression yes_no = choice({literal("yes"), literal("no")});
//
// Cheap to copy (a shared pointer); thread-safe (immutable).

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::grammar {

// Characters by Unicode number, both ends included.
struct CodePointRange {
  char32_t first = 0;
  char32_t last = 0;
};

// A string that stands in the text as one special token. token -1: as plain bytes.
struct Marker {
  std::string text;
  int32_t token = -1;
};

class Expression {
 public:
  struct Node;
  explicit Expression(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  const Node& node() const { return *node_; }
  const Node* operator->() const { return node_.get(); }

 private:
  std::shared_ptr<const Node> node_;
};

constexpr int kUnbounded = std::numeric_limits<int>::max();

// A part of an object's text: members() writes those present with a separator between.
struct Member {
  Expression expression;
  bool required = true;
};

// A way between two states of a graph(), by a text that fits the label.
struct GraphEdge {
  int from = 0;
  int to = 0;
  Expression label;
};

Expression literal(std::string bytes);  // exactly these bytes; empty = the empty text
// One character out of (negated: none of) the ranges, as UTF-8. Surrogates are never characters.
Expression character(std::vector<CodePointRange> ranges, bool negated = false);
Expression sequence(std::vector<Expression> parts);
Expression choice(std::vector<Expression> parts);  // no part = nothing fits
// REQUIRES: 0 <= min <= max; max may be kUnbounded.
Expression repeat(Expression part, int min, int max);
Expression optional(Expression part);
// The members in this order, those not required perhaps left out, `separator` between any two present.
Expression members(std::vector<Member> parts, Expression separator);
// The texts along the edges from state 0 to one of the ends. REQUIRES: states are less than num_states.
Expression graph(std::vector<GraphEdge> edges, std::vector<int> ends, int num_states);
// A special token, by id.
Expression token(int32_t id);
// The marker as its token, or as bytes when it has none.
Expression marker(const Marker& marker);

// A text that free text may lead to. As a token it comes as that alone: its text cannot be spelled out.
struct Trigger {
  Marker marker;
  Expression then;    // what must follow it
  bool ends = false;  // behind that the free text is over; else it goes on
};
struct FreeText {
  std::vector<Trigger> triggers = {};
  std::vector<std::string> forbidden = {};  // never occur in the free parts
  bool may_end = true;  // anywhere in its free parts; else only by a trigger that ends it
};
// Any bytes of ordinary tokens, perhaps none, up to the first occurrence of a trigger; what belongs to the trigger; and
// so on. REQUIRES: no trigger or forbidden text is empty. One within another, the inner one is found first.
Expression free_text(FreeText text);
// Free text without triggers, in which `forbidden` never occurs (empty: no such rule).
Expression any_text(const std::string& forbidden = {});
// Any bytes up to and including the first occurrence of the marker.
Expression text_until(const Marker& marker);
// Where it stands the text so far, from its beginning, or all of the rest is of this form, or is not. Patterns only:
// text_set_of() (text_set.h) makes a set of texts of what holds it.
enum class Look : uint8_t { kAhead, kNotAhead, kBehind, kNotBehind };
Expression look(Expression text, Look kind);
// Another rule of the same set (front ends only; see grammar/expressions/rule_set.h).
Expression rule(int rule_idx);

// Front ends. docs/grammars.md says what they take and refuse.
// Members and items that a schema lists some of and says nothing else about.
enum class Unlisted : uint8_t {
  kAllowed,  // any, as JSON schema has it
  kLeftOut,  // none
  kNowhere,  // none, and an object of which the schema names only the type is {}
};
struct JsonStyle {
  Unlisted unlisted = Unlisted::kAllowed;
  // What stands between two tokens of JSON: a pattern ("" = nothing). Without one the usual forms, json_space.h.
  std::optional<std::string> space = {};
};
Expression json_object(JsonStyle style = {});  // any JSON object, at most 32 levels deep
// JSON text of the schema.
Expression json_schema(std::string schema, JsonStyle style = {});
Expression regex(std::string pattern);  // the whole output matches
// What <name> and <[id]> in rules stand for: a special token, or the text of an ordinary one. nullopt: there is none.
using TokenLookup = std::function<std::optional<Marker>(std::string_view)>;
Expression ebnf(std::string rules, TokenLookup tokens = {});  // starts at the rule "root"
Expression lark(std::string rules, TokenLookup tokens = {});  // starts at the rule "start"
// Either of the two: Lark where its first rule is one.
Expression rules_text(std::string rules, TokenLookup tokens = {});
// {"NAME": "TEXT"}: a JSON object whose only member is a string, and what it says is of this form.
Expression json_text_member(std::string name, Expression text);
// The members of an object of the schema (empty: any object) as parameters of a call in DSML, a line each; the mark is
// its "｜DSML｜" (grammar/dsml_calls.h).
Expression dsml_parameters(std::string schema, Marker mark, JsonStyle style = {});
// What a front end outside of this file found wrong: compile() reports it.
Expression mistake(std::string sentence);

struct Expression::Node {
  enum class Kind : uint8_t {
    kLiteral,    // text
    kCharacter,  // ranges (already positive, sorted, disjoint)
    kSequence,   // parts
    kChoice,     // parts
    kRepeat,     // parts[0], min, max
    kMembers,    // parts and behind them the separator, required
    kGraph,      // parts = labels, links, ends, number = num_states
    kToken,      // number
    // markers, parts = what follows them, required = whether it ends then; texts = forbidden, number = 1: may end
    kFreeText,
    kRule,            // number
    kLook,            // parts[0], number = the Look
    kJsonObject,      // style
    kJsonSchema,      // text, style
    kRegex,           // text
    kEbnf,            // text, tokens
    kLark,            // text, tokens
    kJsonMember,      // text = name, parts[0]
    kDsmlParameters,  // text = schema, markers[0], style
    kMistake,         // text = the sentence
  };
  Kind kind;
  std::string text = {};
  std::vector<Expression> parts = {};
  std::vector<CodePointRange> ranges = {};
  std::vector<bool> required = {};
  std::vector<std::pair<int, int>> links = {};  // [parts] from, to
  std::vector<int> ends = {};
  std::vector<Marker> markers = {};
  std::vector<std::string> texts = {};
  int min = 0, max = 0;
  int32_t number = 0;
  std::shared_ptr<const TokenLookup> tokens = {};  // of rules
  std::shared_ptr<const JsonStyle> style = {};
};

}  // namespace fathom::grammar
