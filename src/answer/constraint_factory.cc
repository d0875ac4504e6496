#include "answer/constraint_factory.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <variant>

#include "answer/tool_schemas.h"
#include "text/chat_markup.h"
#include "text/tool_call_form.h"

namespace fathom::answer {
namespace {

using grammar::Expression;

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
      cache_(config_.max_cache_bytes) {}

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
  const api::ToolConstraint& constraint = request.tool_constraint;
  const grammar::ToolCallOptions options{.required = is_required, .parallel = constraint.parallel};
  std::string key = "tools";
  key += is_required ? 'r' : 'o';
  key += options.parallel ? 'p' : '1';
  key += constraint.follows_schemas ? 's' : '-';
  key += std::to_string(static_cast<int>(request.chat_format)) + json::dump(constraint.tools);
  return {.expression = grammar::tool_calls(tool_syntax(request.chat_format), tools, options),
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
  const grammar::Marker think_end = marker(text::markup::kThinkEnd);
  if (!api::is_chat(request.endpoint)) return form;
  if (request.starts_in_reasoning) {
    form.expression = grammar::sequence({grammar::text_until(think_end), breaks, form.expression});
    form.key = 't' + form.key;
  } else if (text::model_opens_reasoning(request.chat_format)) {
    const Expression thinking =
        grammar::sequence({grammar::marker(marker(text::markup::kThinkBegin)),
                           grammar::text_until(think_end), breaks});
    form.expression = grammar::sequence({grammar::optional(thinking), form.expression});
    form.key = 'w' + form.key;
  }
  return form;
}

ConstraintFactory::Form ConstraintFactory::form_of(const api::GenerationRequest& request,
                                                   const api::GrammarSource& source,
                                                   const std::vector<grammar::Tool>& tools) const {
  using Calls = api::ToolConstraint::Kind;
  const Calls calls_kind = request.tool_constraint.kind;
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

CompiledForm ConstraintFactory::compile(const api::GenerationRequest& request,
                                        const api::GrammarSource& source) const {
  std::vector<grammar::Tool> tools = tools_of(request.tool_constraint);
  const Form form = form_of(request, source, tools);
  Result<GrammarPtr> compiled = grammar::compile(form.expression);
  if (compiled) return *compiled;
  const bool has_source = form.param == source.field;
  if (has_source && (tools.empty() || !grammar::compile(source_form(source).expression)))
    return api::invalid_parameter(form.param, compiled.error().message);
  // What is left to be at fault are the tools.
  if (Status status = let_go_of_schemas(tools); !status)
    return api::invalid_parameter("tools", status.error().message);
  compiled = grammar::compile(form_of(request, source, tools).expression);
  if (!compiled) return api::invalid_parameter("tools", compiled.error().message);
  return *compiled;
}

// With the field that the form came in, since a refusal names it.
std::string ConstraintFactory::source_of(const api::GenerationRequest& request,
                                         const api::GenerationItem& item) const {
  if (item.grammar.kind == api::GrammarSource::Kind::kNone &&
      request.tool_constraint.kind == api::ToolConstraint::Kind::kNone) {
    return "";
  }
  return item.grammar.field + '\n' +
         form_of(request, item.grammar, tools_of(request.tool_constraint)).key;
}

std::vector<std::string> ConstraintFactory::sources_of(
    const api::GenerationRequest& request) const {
  std::vector<std::string> sources;
  sources.reserve(request.items.size());
  for (const api::GenerationItem& item : request.items) {
    sources.push_back(source_of(request, item));
  }
  return sources;
}

bool ConstraintFactory::has_to_compile(const std::vector<std::string>& sources,
                                       const std::string& owner) {
  if (vocabulary_ == nullptr) return false;
  return std::ranges::any_of(sources, [&](const std::string& source) {
    return !source.empty() && !cache_.find(owner, source);
  });
}

api::Parsed<ConstraintPtr> ConstraintFactory::make(const api::GenerationRequest& request,
                                                   const api::GenerationItem& item,
                                                   const CacheKey& key) {
  if (key.source.empty()) return ConstraintPtr();
  if (vocabulary_ == nullptr) {
    const bool has_form = item.grammar.kind != api::GrammarSource::Kind::kNone;
    return api::invalid_parameter(
        has_form ? item.grammar.field : "tools",
        "this model has no end-of-sequence token, so its output cannot be "
        "held to a grammar");
  }
  std::optional<CompiledForm> form = cache_.find(key.owner, key.source);
  if (!form) {
    form = compile(request, item.grammar);
    cache_.add(key.owner, key.source, *form);
  }
  if (const auto* error = std::get_if<api::ApiError>(&*form)) return *error;
  return std::get<GrammarPtr>(*form)->new_constraint(vocabulary_);
}

}  // namespace fathom::answer
