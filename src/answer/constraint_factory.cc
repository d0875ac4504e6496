#include "answer/constraint_factory.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>
#include <variant>

#include "answer/tool_schemas.h"
#include "base/json.h"
#include "grammar/dsml_calls.h"
#include "text/chat_markup.h"
#include "text/tool_call_form.h"

namespace fathom::answer {
namespace {

using grammar::Expression;

Expression reasoning_until(const grammar::Marker& end, bool bars_calls) {
  if (!bars_calls) return grammar::text_until(end);
  return grammar::free_text(
      {.triggers = {{.marker = end, .then = grammar::literal(""), .ends = true}},
       .forbidden = {"<" + std::string(text::markup::kDsml)},
       .may_end = false});
}

std::shared_ptr<const grammar::Vocabulary> make_vocabulary(
    const ConstraintFactory::Config& config) {
  if (config.eos_token_ids.empty()) return nullptr;
  // No grammar lets added tokens through as text, whether tokenizer.json calls them special or not.
  const text::Tokenizer& tokenizer = *config.tokenizer;
  std::vector<grammar::VocabularyToken> tokens(static_cast<size_t>(config.vocab_size));
  for (int id = 0; id < std::min(config.vocab_size, tokenizer.vocab_size()); ++id) {
    tokens[static_cast<size_t>(id)] = {.bytes = tokenizer.token_bytes(id),
                                       .is_special = tokenizer.is_added(id)};
  }
  return std::make_shared<const grammar::Vocabulary>(tokens, config.eos_token_ids);
}

Expression source_expression(const api::GrammarSource& source, const grammar::TokenNames& names) {
  const grammar::JsonStyle style{.unlisted = source.is_strict   ? grammar::Unlisted::kNowhere
                                             : source.is_closed ? grammar::Unlisted::kLeftOut
                                                                : grammar::Unlisted::kAllowed,
                                 .space = source.white_space};
  switch (source.kind) {
    case api::GrammarSource::Kind::kJsonSchema:
      return grammar::json_schema(source.text, style);
    case api::GrammarSource::Kind::kRegex:
      return grammar::regex(source.text);
    case api::GrammarSource::Kind::kEbnf:
      return grammar::rules_text(source.text, names.find);
    case api::GrammarSource::Kind::kStructuralTag:
      return grammar::structural_tag(json::parse(source.text).value(), names);
    default:
      return grammar::json_object(style);
  }
}

// Different for sources of which anything differs.
std::string source_key(const api::GrammarSource& source) {
  std::string key = std::to_string(static_cast<int>(source.kind));
  key += source.is_strict ? 's' : source.is_closed ? 'c' : '-';
  if (source.white_space)
    key += std::to_string(source.white_space->size()) + 'w' + *source.white_space;
  return key + ':' + source.text;
}

grammar::ToolCallStep::Kind step_kind(text::CallStep::Kind kind) {
  using From = text::CallStep::Kind;
  using To = grammar::ToolCallStep::Kind;
  switch (kind) {
    case From::kLiteral:
      return To::kLiteral;
    case From::kSpace:
      return To::kSpace;
    case From::kName:
      return To::kName;
    case From::kCallId:
      return To::kCallId;
    case From::kObject:
      break;
  }
  return To::kObject;
}

}  // namespace

ConstraintFactory::ConstraintFactory(Config config)
    : config_(std::move(config)),
      vocabulary_(make_vocabulary(config_)),
      cache_({.max_bytes = config_.max_cache_bytes, .max_bytes_in_use = config_.max_bytes_in_use}) {
}

bool ConstraintFactory::is_marker(int32_t token) const {
  return token < config_.vocab_size && config_.tokenizer->is_added(token);
}

grammar::Marker ConstraintFactory::marker(std::string_view text) const {
  const int32_t token = config_.tokenizer->added_token_id(text).value_or(-1);
  return {.text = std::string(text), .token = is_marker(token) ? token : -1};
}

std::vector<grammar::Marker> ConstraintFactory::split(std::string_view text) const {
  const text::Tokenizer& tokenizer = *config_.tokenizer;
  std::vector<grammar::Marker> pieces;
  for (const int32_t id : tokenizer.encode(text)) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (is_marker(id)) {
      pieces.push_back({.text = std::string(bytes), .token = id});
    } else if (pieces.empty() || pieces.back().token >= 0) {
      pieces.push_back({.text = std::string(bytes), .token = -1});
    } else {
      pieces.back().text += bytes;
    }
  }
  return pieces;
}

grammar::TokenNames ConstraintFactory::token_names() const {
  const auto special = [this](int64_t id) -> std::optional<grammar::Marker> {
    if (id < 0 || id >= std::min(config_.vocab_size, config_.tokenizer->vocab_size()))
      return std::nullopt;
    const auto token = static_cast<int32_t>(id);
    if (!is_marker(token) || vocabulary_->is_eos(token)) return std::nullopt;
    return grammar::Marker{.text = std::string(config_.tokenizer->token_bytes(token)),
                           .token = token};
  };
  const auto find = [this, special](std::string_view name) -> std::optional<grammar::Marker> {
    const text::Tokenizer& tokenizer = *config_.tokenizer;
    std::optional<int32_t> id = tokenizer.token_id(name);
    if (name.starts_with("<[") && name.ends_with("]>")) {
      const std::string_view digits = name.substr(2, name.size() - 4);
      int32_t value = -1;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value);
      const bool is_number = error == std::errc() && end == digits.data() + digits.size();
      id = is_number ? std::optional(value) : std::nullopt;
    }
    if (!id || *id < 0 || *id >= std::min(config_.vocab_size, tokenizer.vocab_size()))
      return std::nullopt;
    if (tokenizer.is_added(*id)) return special(*id);
    return grammar::Marker{.text = std::string(tokenizer.token_bytes(*id)), .token = -1};
  };
  return {.split = [this](std::string_view text) { return split(text); },
          .special = special,
          .find = find};
}

grammar::ToolCallSyntax ConstraintFactory::tool_syntax(text::ChatFormat format) const {
  const text::ToolCallForm& form = *text::tool_call_form(format);
  grammar::ToolCallSyntax syntax{.section_begin = marker(form.section_begin),
                                 .section_end = marker(form.section_end),
                                 .call_begin = marker(form.call_begin),
                                 .steps = {}};
  for (const text::CallStep& step : form.steps) {
    syntax.steps.push_back({.kind = step_kind(step.kind), .literal = marker(step.literal)});
  }
  return syntax;
}

// An output that is tool calls (is_required), or text that calls may follow.
ConstraintFactory::Form ConstraintFactory::tool_form(const api::GenerationRequest& request,
                                                     const std::vector<grammar::Tool>& tools,
                                                     bool is_required) const {
  const api::ToolConstraint& constraint = request.chat.tool_constraint;
  const grammar::ToolCallOptions options{.required = is_required, .parallel = constraint.parallel};
  std::string key = "tools";
  key += is_required ? 'r' : 'o';
  key += options.parallel ? 'p' : '1';
  key += constraint.follows_schemas ? 's' : '-';
  key += std::to_string(static_cast<int>(request.chat.format)) + json::dump(*constraint.tools);
  const text::ChatFormat format = request.chat.format;
  return {.expression = text::writes_dsml(format)
                            ? grammar::dsml_calls(marker(text::markup::kDsml), tools, options)
                            : grammar::tool_calls(tool_syntax(format), tools, options),
          .key = std::move(key),
          .param = "tools"};
}

ConstraintFactory::Form ConstraintFactory::source_form(const api::GrammarSource& source) const {
  return {.expression = source_expression(source, token_names()),
          .key = source_key(source),
          .param = source.field};
}

ConstraintFactory::Form ConstraintFactory::behind_reasoning(const api::GenerationRequest& request,
                                                            Form form) const {
  // The output parser takes up to two line breaks after </think> as part of it, so the grammar must allow them.
  const Expression breaks = grammar::repeat(grammar::literal("\n"), 0, 2);
  if (!api::is_chat(request.form.endpoint)) return form;
  // A call in DSML is one within reasoning too, where nothing would hold it to a schema.
  const bool bars_calls = text::writes_dsml(request.chat.format) && request.chat.parse_tools;
  const Expression reasoning = reasoning_until(marker(text::markup::kThinkEnd), bars_calls);
  if (bars_calls) form.key = 'd' + form.key;
  if (request.chat.starts_in_reasoning) {
    form.expression = grammar::sequence({reasoning, breaks, form.expression});
    form.key = 't' + form.key;
  } else if (text::model_opens_reasoning(request.chat.format)) {
    const Expression thinking =
        grammar::sequence({grammar::marker(marker(text::markup::kThinkBegin)), reasoning, breaks});
    form.expression = grammar::sequence({grammar::optional(thinking), form.expression});
    form.key = 'w' + form.key;
  }
  return form;
}

ConstraintFactory::Form ConstraintFactory::form_of(const api::GenerationRequest& request,
                                                   const api::GrammarSource& source,
                                                   const std::vector<grammar::Tool>& tools) const {
  using Calls = api::ToolConstraint::Kind;
  const Calls calls_kind = request.chat.tool_constraint.kind;
  const bool has_source = source.kind != api::GrammarSource::Kind::kNone;
  if (calls_kind == Calls::kRequired || !has_source) {
    return behind_reasoning(request, tool_form(request, tools, calls_kind == Calls::kRequired));
  }
  Form form = source_form(source);
  if (calls_kind == Calls::kOptional) {
    const Form calls = tool_form(request, tools, /*is_required=*/true);
    form.expression = grammar::choice({calls.expression, form.expression});
    form.key = calls.key + form.key;
  }
  return behind_reasoning(request, std::move(form));
}

CompiledForm ConstraintFactory::compiled(const api::GenerationRequest& request,
                                         const api::GrammarSource& source) const {
  std::vector<grammar::Tool> tools = tools_of(request.chat.tool_constraint);
  const Form form = form_of(request, source, tools);
  Result<GrammarPtr> made = grammar::compile(form.expression);
  if (made) return *made;
  const bool has_source = form.param == source.field;
  if (has_source && (tools.empty() || !grammar::compile(source_form(source).expression)))
    return api::invalid_parameter(form.param, made.error().message);
  // What is left to be at fault are the tools.
  const bool in_dsml = text::writes_dsml(request.chat.format);
  const auto mark = in_dsml ? std::optional(marker(text::markup::kDsml)) : std::nullopt;
  if (Status status = let_go_of_schemas(tools, mark); !status)
    return api::invalid_parameter("tools", status.error().message);
  made = grammar::compile(form_of(request, source, tools).expression);
  if (!made) return api::invalid_parameter("tools", made.error().message);
  return *made;
}

// With the field that the form came in, since a refusal names it.
std::string ConstraintFactory::key_of(const api::GenerationRequest& request,
                                      const api::GrammarSource& source) const {
  if (source.kind == api::GrammarSource::Kind::kNone &&
      request.chat.tool_constraint.kind == api::ToolConstraint::Kind::kNone) {
    return "";
  }
  return source.field + '\n' + form_of(request, source, tools_of(request.chat.tool_constraint)).key;
}

WantedForms ConstraintFactory::forms_of(const api::GenerationRequest& request) const {
  WantedForms wanted;
  std::unordered_map<const api::GrammarSource*, size_t> by_source;
  std::unordered_map<std::string, size_t> by_key;
  wanted.of_item.reserve(request.items.size());
  for (const api::GenerationItem& item : request.items) {
    const auto [found, is_new] = by_source.emplace(item.grammar.get(), 0);
    if (is_new) {
      std::string key = key_of(request, *item.grammar);
      found->second = by_key.emplace(key, wanted.forms.size()).first->second;
      if (found->second == wanted.forms.size())
        wanted.forms.push_back({.key = std::move(key), .source = item.grammar});
    }
    wanted.of_item.push_back(found->second);
  }
  return wanted;
}

bool ConstraintFactory::find(WantedForm& form, const std::string& owner) {
  if (form.key.empty() || form.made) return true;
  if (vocabulary_ == nullptr) {
    const bool has_form = form.source->kind != api::GrammarSource::Kind::kNone;
    form.made = api::invalid_parameter(
        has_form ? form.source->field : "tools",
        "this model has no end-of-sequence token, so its output cannot be held to a grammar");
    return true;
  }
  form.made = cache_.find(owner, form.key);
  return form.made.has_value();
}

void ConstraintFactory::compile(const api::GenerationRequest& request, WantedForm& form,
                                const std::string& owner) {
  if (!cache_.has_room(owner)) {
    form.made = api::overloaded();
    return;
  }
  form.made = compiled(request, *form.source);
  cache_.add(owner, form.key, *form.made);
}

std::optional<api::ApiError> ConstraintFactory::count_next(WantedForms& wanted) const {
  const WantedForm& form = wanted.next();
  ++wanted.num_made;
  if (!form.made) return std::nullopt;
  if (const auto* error = std::get_if<api::ApiError>(&*form.made)) return *error;
  wanted.num_bytes += std::get<GrammarPtr>(*form.made)->memory_bytes();
  if (wanted.num_bytes <= config_.max_request_bytes) return std::nullopt;
  return api::invalid_parameter(form.source->field,
                                "the grammars of the request need more than " +
                                    std::to_string(config_.max_request_bytes) +
                                    " bytes of memory together, send them in several requests");
}

api::Parsed<ConstraintPtr> ConstraintFactory::make(const WantedForm& form) const {
  if (form.key.empty()) return ConstraintPtr();
  if (const auto* error = std::get_if<api::ApiError>(&*form.made)) return *error;
  return std::get<GrammarPtr>(*form.made)->new_constraint(vocabulary_);
}

api::Parsed<ConstraintPtr> ConstraintFactory::make(const api::GenerationRequest& request,
                                                   const api::GenerationItem& item) {
  WantedForm form{.key = key_of(request, *item.grammar), .source = item.grammar};
  if (!find(form, "")) compile(request, form, "");
  return make(form);
}

}  // namespace fathom::answer
