#include "grammar/structural_tag.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/expressions/budget.h"
#include "grammar/expressions/text_search.h"
#include "grammar/grammar.h"
#include "grammar/tag_fields.h"

namespace fathom::grammar {
namespace {

// Tags are the form in which functions are called: they take the arguments that they name.
const JsonStyle kTagStyle = {.unlisted = Unlisted::kLeftOut};
constexpr int kMaxTagWhiteSpace = 1000;

// A text that begins in free text, and what follows it. From a token: `token`, and its text.
struct TagWay {
  std::string begin;
  int32_t token = -1;
  Expression rest;
};

// What free text is made of.
struct FreePart {
  std::vector<TagWay> ways;
  std::vector<std::string> triggers;  // of texts; each way by text begins with one of them
  std::vector<std::string> forbidden;
  bool loops = true;  // free text goes on behind a way
};

class TagReader {
 public:
  explicit TagReader(const TokenNames& names) : names_(names), budget_(limits_) {}

  Expression read(const json::Value& tag) {
    const TagFields fields(tag, "the top", problem_);
    if (fields.find("type") != nullptr && fields.text("type") != "structural_tag") {
      fields.fail(R"("type" must be "structural_tag")");
    }
    Expression result =
        fields.find("format") != nullptr ? read_tree(fields) : read_structures(fields);
    if (problem_.empty() && !budget_.ok()) problem_ = budget_.error().message;
    return problem_.empty() ? result : mistake(problem_);
  }

 private:
  // Texts that never occur in free text at this place: the ends of the nearest tag around it.
  using Ends = std::vector<std::string>;

  // One of the formats that stand in the tree.
  struct Format {
    std::string_view type;
    Expression (TagReader::*read)(const TagFields& fields, const Ends& ends);
  };
  static const std::array<Format, 19>& formats();

  Expression read_tree(const TagFields& fields) {
    fields.allow({"type", "format"});
    return format(*fields.find("format"), "format", {});
  }

  // SGLang's older form.
  Expression read_structures(const TagFields& fields) {
    fields.allow({"type", "structures", "triggers"});
    if (fields.find("structures") == nullptr)
      fields.fail(R"("format" is missing, or "structures" with "triggers")");
    const json::Value* structures = fields.list("structures");
    FreePart part{.ways = {}, .triggers = fields.texts("triggers"), .forbidden = {}};
    if (structures == nullptr) return literal("");
    for (size_t i = 0; i < structures->size() && may_go_on(); ++i) {
      const TagFields item((*structures)[i], "structures[" + std::to_string(i) + "]", problem_);
      item.allow({"begin", "schema", "end"});
      const std::string begin = item.text("begin"), end = item.text("end");
      part.ways.push_back(
          {.begin = begin, .rest = sequence({structure_schema(item), written(end)})});
    }
    return free(fields, std::move(part), {});
  }

  Expression structure_schema(const TagFields& item) {
    const json::Value* schema = item.needed("schema");
    if (schema == nullptr) return literal("");
    if (schema->is_string()) return json_schema(schema->get<std::string>(), kTagStyle);
    return json_schema(json::dump(*schema), kTagStyle);
  }

  Expression format(const json::Value& value, const std::string& path, const Ends& ends) {
    const TagFields fields(value, path, problem_);
    const std::string type = fields.text("type");
    if (++depth_ > limits_.max_depth)
      fields.fail("formats nested deeper than " + std::to_string(limits_.max_depth));
    Expression result = literal("");
    bool is_known = false;
    for (const Format& known : formats()) {
      if (known.type != type || !may_go_on()) continue;
      is_known = true;
      result = (this->*known.read)(fields, ends);
    }
    if (type == "exclude_token") {
      fields.fail(
          "the type exclude_token is not supported: ordinary text is not held to the borders of "
          "tokens");
    } else if (!is_known) {
      fields.fail("the type " + json::shown_text(type) + " is not supported");
    }
    --depth_;
    return result;
  }

  Expression const_string(const TagFields& fields, const Ends&) {
    fields.allow({"type", "value"});
    return written(fields.text("value"));
  }
  Expression schema(const TagFields& fields, const Ends&) {
    fields.allow({"type", "json_schema", "style", "any_order", "max_whitespace_cnt", "excludes"});
    if (fields.find("style") != nullptr && fields.text("style") != "json") {
      fields.fail(R"("style" must be "json", the other forms of arguments are not supported)");
    }
    fields.refuse("any_order", "members have the order of the schema");
    fields.refuse("excludes", "the schema's pattern says what its strings hold");
    const json::Value* schema = fields.needed("json_schema");
    if (schema == nullptr) return literal("");
    if (!schema->is_object() && !schema->is_boolean())
      fields.fail(R"("json_schema" must be an object, true or false)");
    JsonStyle style = kTagStyle;
    if (fields.find("max_whitespace_cnt") != nullptr) {
      const int most = fields.count("max_whitespace_cnt");
      if (most < 0) fields.fail(R"("max_whitespace_cnt" must be at least 0)");
      style.space = "[ \\n\\t]{0," + std::to_string(std::clamp(most, 0, kMaxTagWhiteSpace)) + "}";
    }
    return json_schema(json::dump(*schema), std::move(style));
  }
  Expression rules(const TagFields& fields, const Ends&) {
    fields.allow({"type", "grammar"});
    return rules_text(fields.text("grammar"), names_.find);
  }
  Expression pattern(const TagFields& fields, const Ends&) {
    fields.allow({"type", "pattern"});
    return regex(fields.text("pattern"));
  }
  Expression any(const TagFields& fields, const Ends& ends) {
    fields.allow({"type", "excludes", "max_tokens", "max_chars"});
    fields.refuse("max_tokens", "free text has no bound of its own");
    fields.refuse("max_chars", "free text has no bound of its own");
    return free(fields, {.ways = {}, .triggers = {}, .forbidden = fields.texts("excludes")}, ends);
  }

  Expression all_of(const TagFields& fields, const Ends& ends) {
    return sequence(elements(fields, ends));
  }
  Expression one_of(const TagFields& fields, const Ends& ends) {
    return choice(elements(fields, ends));
  }
  std::vector<Expression> elements(const TagFields& fields, const Ends& ends) {
    fields.allow({"type", "elements"});
    std::vector<Expression> parts;
    const json::Value* list = fields.list("elements");
    for (size_t i = 0; list != nullptr && i < list->size() && may_go_on(); ++i) {
      parts.push_back(
          format((*list)[i], fields.path() + ".elements[" + std::to_string(i) + "]", ends));
    }
    return parts;
  }

  Expression content(const TagFields& fields, const Ends& ends) {
    const json::Value* value = fields.needed("content");
    return value == nullptr ? literal("") : format(*value, fields.path() + ".content", ends);
  }
  Expression repeated(const TagFields& fields, const Ends& ends, int min, int max) {
    fields.allow({"type", "content"});
    return repeat(content(fields, ends), min, max);
  }
  Expression at_most_one(const TagFields& fields, const Ends& ends) {
    return repeated(fields, ends, 0, 1);
  }
  Expression plus(const TagFields& fields, const Ends& ends) {
    return repeated(fields, ends, 1, kUnbounded);
  }
  Expression star(const TagFields& fields, const Ends& ends) {
    return repeated(fields, ends, 0, kUnbounded);
  }
  Expression counted(const TagFields& fields, const Ends& ends) {
    fields.allow({"type", "min", "max", "content"});
    const int min = fields.count("min"), max = fields.count("max");
    if (min < 0) fields.fail(R"("min" must be at least 0)");
    if (max >= 0 && min > max) fields.fail(R"("min" must be at most "max")");
    if (!may_go_on()) return literal("");
    return repeat(content(fields, ends), min, max < 0 ? kUnbounded : max);
  }

  Expression tag(const TagFields& fields, const Ends&) {
    const TagWay way = tag_way(fields);
    const Expression begin = way.token >= 0 ? grammar::token(way.token) : written(way.begin);
    return sequence({begin, way.rest});
  }

  // begin, content, end: what stands around a tag counts no more in it.
  TagWay tag_way(const TagFields& fields) {
    fields.allow({"type", "begin", "content", "end"});
    if (fields.find("type") != nullptr && fields.text("type") != "tag")
      fields.fail(R"("type" must be "tag")");
    TagWay way{.begin = {}, .rest = literal("")};
    const json::Value* begin = fields.needed("begin");
    const json::Value* end = fields.needed("end");
    if (begin == nullptr || end == nullptr) return way;
    if (begin->is_object()) {
      const Marker marker = token_of(*begin, fields.path() + ".begin");
      way.begin = marker.text;
      way.token = marker.token;
    } else {
      way.begin = fields.text("begin");
    }
    Ends ends;
    std::vector<Expression> closings;
    if (end->is_object()) {
      const Marker marker = token_of(*end, fields.path() + ".end");
      if (!marker.text.empty()) ends.push_back(marker.text);
      closings.push_back(marker.token >= 0 ? grammar::token(marker.token) : literal(""));
    } else {
      for (const std::string& text : end_texts(fields, *end)) {
        if (!text.empty()) ends.push_back(text);
        closings.push_back(written(text));
      }
    }
    way.rest = sequence({content(fields, ends), choice(std::move(closings))});
    return way;
  }
  std::vector<std::string> end_texts(const TagFields& fields, const json::Value& end) {
    if (end.is_string()) return {end.get<std::string>()};
    std::vector<std::string> texts;
    if (!end.is_array() || end.empty())
      fields.fail(R"("end" must be a string, a list of strings or a token)");
    for (size_t i = 0; end.is_array() && i < end.size(); ++i) {
      if (!end[i].is_string()) fields.fail(R"("end" must hold strings)");
      if (end[i].is_string()) texts.push_back(end[i].get<std::string>());
    }
    return texts;
  }

  std::vector<TagWay> tag_ways(const TagFields& fields, bool by_token) {
    std::vector<TagWay> ways;
    const json::Value* tags = fields.list("tags");
    for (size_t i = 0; tags != nullptr && i < tags->size() && may_go_on(); ++i) {
      const TagFields inner((*tags)[i], fields.path() + ".tags[" + std::to_string(i) + "]",
                            problem_);
      TagWay way = tag_way(inner);
      if (by_token != (way.token >= 0)) {
        inner.fail(by_token ? R"("begin" must be a token here)"
                            : R"("begin" must be a string here)");
      }
      ways.push_back(std::move(way));
    }
    return ways;
  }

  Expression triggered_tags(const TagFields& fields, const Ends& ends) {
    fields.allow({"type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes"});
    fields.list("triggers");
    return triggered(fields,
                     {.ways = tag_ways(fields, /*by_token=*/false),
                      .triggers = fields.texts("triggers"),
                      .forbidden = fields.texts("excludes")},
                     ends);
  }
  Expression token_triggered_tags(const TagFields& fields, const Ends& ends) {
    fields.allow(
        {"type", "trigger_tokens", "tags", "at_least_one", "stop_after_first", "exclude_tokens"});
    FreePart part{.ways = tag_ways(fields, /*by_token=*/true), .triggers = {}, .forbidden = {}};
    std::set<int32_t> triggers;
    for (const Marker& marker : tokens(fields, "trigger_tokens")) triggers.insert(marker.token);
    if (triggers.empty()) fields.fail(R"("trigger_tokens" must be a list that is not empty)");
    check_excluded(fields, part);
    for (const TagWay& way : part.ways) {
      if (!triggers.erase(way.token) && !is_repeated(part, way))
        fields.fail("no trigger is the token " + json::shown_text(way.begin));
    }
    if (!triggers.empty()) fields.fail("a trigger begins no tag");
    return triggered(fields, std::move(part), ends);
  }
  // Whether a way before this one begins with the same token.
  static bool is_repeated(const FreePart& part, const TagWay& way) {
    for (const TagWay& other : part.ways) {
      if (&other == &way) return false;
      if (other.token == way.token) return true;
    }
    return false;
  }

  Expression triggered(const TagFields& fields, FreePart part, const Ends& ends) {
    part.loops = !fields.flag("stop_after_first", false);
    if (!fields.flag("at_least_one", false)) return free(fields, std::move(part), ends);
    // Then the first tag comes without text before it.
    std::vector<Expression> tags;
    for (const TagWay& way : part.ways) tags.push_back(sequence({begin_of(way), way.rest}));
    const bool loops = part.loops;
    const Expression more = free(fields, std::move(part), ends);
    if (!may_go_on()) return literal("");
    Expression one = choice(std::move(tags));
    if (!loops) return one;
    return sequence({one, more});
  }

  Expression separated_tags(const TagFields& fields, const Ends&) {
    fields.allow({"type", "tags", "separator", "at_least_one", "stop_after_first"});
    const std::string separator = fields.text("separator");
    std::vector<Expression> tags;
    const json::Value* list = fields.list("tags");
    for (size_t i = 0; list != nullptr && i < list->size() && may_go_on(); ++i) {
      tags.push_back(
          tag({(*list)[i], fields.path() + ".tags[" + std::to_string(i) + "]", problem_}, {}));
    }
    const bool is_needed = fields.flag("at_least_one", false),
               is_one = fields.flag("stop_after_first", false);
    if (!may_go_on()) return literal("");
    Expression one = choice(std::move(tags));
    const Expression more = repeat(sequence({written(separator), one}), 0, is_one ? 0 : kUnbounded);
    const Expression all = sequence({one, more});
    return is_needed ? all : optional(all);
  }

  Expression dispatch(const TagFields& fields, const Ends& ends) {
    fields.allow({"type", "rules", "loop", "excludes"});
    FreePart part{.ways = {},
                  .triggers = {},
                  .forbidden = fields.texts("excludes"),
                  .loops = fields.flag("loop", true)};
    read_rules(fields, ends, [&](const json::Value& name, Expression rest) {
      if (!name.is_string() || json::is_text(name, ""))
        return fields.fail(R"("rules" must hold lists of a text and a format)");
      part.ways.push_back({.begin = name.get<std::string>(), .rest = std::move(rest)});
      part.triggers.push_back(name.get<std::string>());
    });
    return free(fields, std::move(part), ends);
  }
  Expression token_dispatch(const TagFields& fields, const Ends& ends) {
    fields.allow({"type", "rules", "loop", "exclude_tokens"});
    FreePart part{.ways = {}, .triggers = {}, .forbidden = {}, .loops = fields.flag("loop", true)};
    read_rules(fields, ends, [&](const json::Value& name, Expression rest) {
      const Marker marker = token_named(fields, name);
      part.ways.push_back({.begin = marker.text, .token = marker.token, .rest = std::move(rest)});
    });
    check_excluded(fields, part);
    return free(fields, std::move(part), ends);
  }
  template <class Take>
  void read_rules(const TagFields& fields, const Ends& ends, const Take& take) {
    const json::Value* rules = fields.list("rules");
    for (size_t i = 0; rules != nullptr && i < rules->size() && may_go_on(); ++i) {
      const json::Value& rule = (*rules)[i];
      if (!rule.is_array() || rule.size() != 2) {
        return fields.fail(
            R"("rules" must hold lists of two: what leads to a format, and the format)");
      }
      take(rule[0], format(rule[1], fields.path() + ".rules[" + std::to_string(i) + "][1]", ends));
    }
  }

  Expression token(const TagFields& fields, const Ends&) {
    fields.allow({"type", "token"});
    const json::Value* name = fields.needed("token");
    return name == nullptr ? literal("") : marker(token_named(fields, *name));
  }
  Expression any_tokens(const TagFields& fields, const Ends& ends) {
    fields.allow({"type", "exclude_tokens", "max_tokens"});
    fields.refuse("max_tokens", "free text has no bound of its own");
    check_excluded(fields, {});
    return free(fields, {}, ends);
  }

  Marker token_of(const json::Value& value, const std::string& path) {
    const TagFields fields(value, path, problem_);
    fields.allow({"type", "token"});
    const json::Value* name = fields.needed("token");
    return name == nullptr ? Marker{} : token_named(fields, *name);
  }
  Marker token_named(const TagFields& fields, const json::Value& name) {
    if (name.is_string()) {
      const std::vector<Marker> pieces = pieces_of(name.get_ref<const std::string&>());
      if (pieces.size() == 1 && pieces[0].token >= 0) return pieces[0];
    } else if (name.is_number_integer()) {
      if (const std::optional<Marker> marker = names_.special(name.get<int64_t>())) return *marker;
    }
    fields.fail(json::dump(name).substr(0, 64) +
                " is no special token; ordinary text is written as a string");
    return {};
  }
  std::vector<Marker> tokens(const TagFields& fields, std::string_view name) {
    std::vector<Marker> markers;
    const json::Value* list = fields.find(name);
    if (list == nullptr) return markers;
    if (!list->is_array()) fields.fail("\"" + std::string(name) + "\" must be a list");
    for (size_t i = 0; list->is_array() && i < list->size() && may_go_on(); ++i) {
      markers.push_back(token_named(fields, (*list)[i]));
    }
    return markers;
  }
  // Free text holds no special tokens anyway; what leads on cannot be excluded.
  void check_excluded(const TagFields& fields, const FreePart& part) {
    std::set<int32_t> excluded;
    for (const Marker& marker : tokens(fields, "exclude_tokens")) excluded.insert(marker.token);
    for (const TagWay& way : part.ways) {
      if (excluded.contains(way.token))
        fields.fail("the token " + json::shown_text(way.begin) + " is excluded and leads on");
    }
  }

  std::vector<Marker> pieces_of(std::string_view text) {
    std::vector<Marker> pieces = names_.split(text);
    for (const Marker& piece : pieces) {
      if (piece.token < 0 || names_.special(piece.token) || !problem_.empty()) continue;
      problem_ = "structural_tag: " + json::shown_text(piece.text) +
                 " ends every output, it cannot be part of one";
    }
    return pieces;
  }
  // The text with its special tokens.
  Expression written(std::string_view text) {
    std::vector<Expression> parts;
    for (const Marker& piece : pieces_of(text)) parts.push_back(marker(piece));
    return parts.empty() ? literal("") : sequence(std::move(parts));
  }
  Expression begin_of(const TagWay& way) {
    return way.token >= 0 ? grammar::token(way.token) : written(way.begin);
  }

  Expression free(const TagFields& fields, FreePart part, const Ends& ends) {
    FreeText text{.triggers = {}, .forbidden = std::move(part.forbidden)};
    text.forbidden.insert(text.forbidden.end(), ends.begin(), ends.end());
    for (const std::string& trigger : part.triggers) {
      const auto begins = [&](const TagWay& way) {
        return budget_.charge(4) && way.begin.starts_with(trigger);
      };
      if (std::none_of(part.ways.begin(), part.ways.end(), begins)) {
        fields.fail("the trigger " + json::shown_text(trigger) + " begins no tag");
      }
    }
    std::map<int32_t, std::vector<Expression>> by_token;
    std::vector<std::vector<Expression>> by_trigger(part.triggers.size());
    for (const TagWay& way : part.ways) {
      if (!may_go_on()) return literal("");
      if (way.token >= 0) {
        by_token[way.token].push_back(way.rest);
      } else {
        add_text_way(fields, part, way, by_token, by_trigger);
      }
    }
    const auto add = [&](const Marker& marker, std::vector<Expression>& ways) {
      const Expression then = choice(std::move(ways));
      text.triggers.push_back({.marker = marker, .then = then, .ends = !part.loops});
    };
    for (auto& [token, ways] : by_token) add(*names_.special(token), ways);
    for (size_t i = 0; i < by_trigger.size(); ++i) {
      const Marker marker{.text = part.triggers[i], .token = -1};
      if (!by_trigger[i].empty()) add(marker, by_trigger[i]);
    }
    check_apart(fields, text);
    return may_go_on() ? free_text(std::move(text)) : literal("");
  }

  // Behind its one trigger, or behind the special token that it begins with.
  void add_text_way(const TagFields& fields, const FreePart& part, const TagWay& way,
                    std::map<int32_t, std::vector<Expression>>& by_token,
                    std::vector<std::vector<Expression>>& by_trigger) {
    size_t trigger = part.triggers.size();
    for (size_t i = 0; i < part.triggers.size() && budget_.charge(4); ++i) {
      if (!way.begin.starts_with(part.triggers[i])) continue;
      if (trigger < part.triggers.size())
        fields.fail("two triggers begin " + json::shown_text(way.begin));
      trigger = i;
    }
    if (trigger == part.triggers.size())
      return fields.fail("no trigger begins " + json::shown_text(way.begin));
    const std::string& text = part.triggers[trigger];
    const std::vector<Marker> pieces = pieces_of(way.begin);
    if (!may_go_on()) return;
    if (pieces[0].token >= 0) {
      const std::vector<Marker> own = names_.split(text);
      if (own[0].token != pieces[0].token) return fail_border(fields, text, pieces[0]);
      by_token[pieces[0].token].push_back(
          sequence({written(way.begin.substr(pieces[0].text.size())), way.rest}));
      return;
    }
    if (text.size() > pieces[0].text.size()) {
      return fields.fail("the trigger " + json::shown_text(text) +
                         " holds a special token, which must stand at its begin");
    }
    by_trigger[trigger].push_back(sequence({written(way.begin.substr(text.size())), way.rest}));
  }
  static void fail_border(const TagFields& fields, const std::string& trigger,
                          const Marker& token) {
    fields.fail("the trigger " + json::shown_text(trigger) + " ends within the special token " +
                json::shown_text(token.text));
  }

  // What free text leads to is told by the first trigger that occurs: none may hold another, or what is excluded.
  void check_apart(const TagFields& fields, const FreeText& text) {
    std::vector<std::string> all;
    for (const Trigger& trigger : text.triggers) all.push_back(trigger.marker.text);
    all.insert(all.end(), text.forbidden.begin(), text.forbidden.end());
    const TextSearch search(all, budget_);
    for (size_t i = 0; i < text.triggers.size() && may_go_on(); ++i) {
      int at = 0;
      for (size_t k = 0; k < all[i].size() && budget_.charge(1); ++k) {
        at = search.next(at, static_cast<uint8_t>(all[i][k]));
        const int found = search.found(at);
        if (found == TextSearch::kNone || (k + 1 == all[i].size() && found == static_cast<int>(i)))
          continue;
        const std::string& inner = all[static_cast<size_t>(found)];
        return fields.fail("the trigger " + json::shown_text(all[i]) + " holds " +
                           json::shown_text(inner) + ", another trigger or an excluded text");
      }
    }
  }

  bool may_go_on() { return problem_.empty() && budget_.charge(16); }

  const TokenNames& names_;
  const Limits limits_;
  Budget budget_;
  std::string problem_;
  int depth_ = 0;
};

const std::array<TagReader::Format, 19>& TagReader::formats() {
  static constexpr std::array<Format, 19> kFormats = {{
      {"const_string", &TagReader::const_string},
      {"json_schema", &TagReader::schema},
      {"grammar", &TagReader::rules},
      {"regex", &TagReader::pattern},
      {"any_text", &TagReader::any},
      {"sequence", &TagReader::all_of},
      {"or", &TagReader::one_of},
      {"optional", &TagReader::at_most_one},
      {"plus", &TagReader::plus},
      {"star", &TagReader::star},
      {"repeat", &TagReader::counted},
      {"tag", &TagReader::tag},
      {"triggered_tags", &TagReader::triggered_tags},
      {"tags_with_separator", &TagReader::separated_tags},
      {"dispatch", &TagReader::dispatch},
      {"token", &TagReader::token},
      {"any_tokens", &TagReader::any_tokens},
      {"token_triggered_tags", &TagReader::token_triggered_tags},
      {"token_dispatch", &TagReader::token_dispatch},
  }};
  return kFormats;
}

}  // namespace

Expression structural_tag(const json::Value& tag, const TokenNames& names) {
  return TagReader(names).read(tag);
}

}  // namespace fathom::grammar
