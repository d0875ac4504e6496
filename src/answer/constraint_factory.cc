#include "answer/constraint_factory.h"

#include <algorithm>
#include <charconv>
#include <utility>

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
  if (config.chat_format) {
    for (const std::string_view text : text::output_markers(*config.chat_format)) {
      const std::optional<int32_t> id = tokenizer.token_id(text);
      if (id && *id < config.vocab_size) tokens[static_cast<size_t>(*id)].is_special = true;
    }
  }
  return std::make_shared<const grammar::Vocabulary>(tokens, config.eos_token_ids);
}

Expression source_expression(const api::GrammarSource& source, const grammar::TokenNames& names) {
  switch (source.kind) {
    case api::GrammarSource::Kind::kJsonSchema:
      return grammar::json_schema(source.text);
    case api::GrammarSource::Kind::kRegex:
      return grammar::regex(source.text);
    case api::GrammarSource::Kind::kEbnf:
      return grammar::rules_text(source.text, names.find);
    case api::GrammarSource::Kind::kStructuralTag:
      return grammar::structural_tag(json::parse(source.text).value(), names);
    default:
      return grammar::json_object();
  }
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

// A custom tool's arguments are {"input": "..."}: any text, or one that its grammar takes.
grammar::Tool custom_tool_of(const json::Value& custom) {
  static constexpr std::string_view kAnyInput =
      R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false})";
  grammar::Tool tool{.name = custom.value("name", ""), .parameters_schema = std::string(kAnyInput)};
  const auto format = custom.find("format");
  if (format == custom.end() || !format->contains("grammar")) return tool;
  const json::Value& grammar = (*format)["grammar"];
  std::string definition = grammar.value("definition", "");
  tool.input = grammar.value("syntax", "") == "regex" ? grammar::regex(std::move(definition))
                                                      : grammar::lark(std::move(definition));
  return tool;
}

// The tool as the grammar module wants it. Without has_schema, or where the tool has none, a function's arguments may
// be any JSON object.
grammar::Tool tool_of(const json::Value& value, bool has_schema) {
  if (value.contains("custom")) return custom_tool_of(value["custom"]);
  const json::Value& function = value.contains("function") ? value["function"] : value;
  grammar::Tool tool{.name = function.value("name", ""), .parameters_schema = ""};
  const auto parameters = function.find("parameters");
  if (has_schema && parameters != function.end() && parameters->is_object()) {
    tool.parameters_schema = json::dump(*parameters);
  }
  return tool;
}

}  // namespace

ConstraintFactory::ConstraintFactory(Config config)
    : config_(std::move(config)),
      vocabulary_(make_vocabulary(config_)),
      cache_(config_.max_cache_bytes) {}

grammar::Marker ConstraintFactory::marker(std::string_view text) const {
  return {.text = std::string(text), .token = config_.tokenizer->token_id(text).value_or(-1)};
}

std::vector<grammar::Marker> ConstraintFactory::split(std::string_view text) const {
  const text::Tokenizer& tokenizer = *config_.tokenizer;
  std::vector<grammar::Marker> pieces;
  for (const int32_t id : tokenizer.encode(text)) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (tokenizer.is_added(id)) {
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
    if (!config_.tokenizer->is_added(token) || vocabulary_->is_eos(token)) return std::nullopt;
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
                                                     bool is_required) const {
  const api::ToolConstraint& constraint = request.tool_constraint;
  std::vector<grammar::Tool> tools;
  for (const json::Value& value : constraint.tools) {
    tools.push_back(tool_of(value, constraint.follows_schemas));
  }
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
          .key = std::to_string(static_cast<int>(source.kind)) + source.text,
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
  } else if (request.chat_format == text::ChatFormat::kR1_0528 ||
             request.chat_format == text::ChatFormat::kR1Tools) {
    // Prompts of these formats do not open the reasoning: the model writes <think> itself, or does not reason.
    const Expression thinking =
        grammar::sequence({grammar::marker(marker(text::markup::kThinkBegin)),
                           grammar::text_until(think_end), breaks});
    form.expression = grammar::sequence({grammar::optional(thinking), form.expression});
    form.key = 'w' + form.key;
  }
  return form;
}

ConstraintFactory::Form ConstraintFactory::form_of(const api::GenerationRequest& request,
                                                   const api::GrammarSource& source) const {
  using Tools = api::ToolConstraint::Kind;
  const Tools tools = request.tool_constraint.kind;
  const bool has_source = source.kind != api::GrammarSource::Kind::kNone;
  if (tools == Tools::kRequired || !has_source) {
    return behind_reasoning(request, tool_form(request, tools == Tools::kRequired));
  }
  Form form = source_form(source);
  if (tools == Tools::kOptional) {
    const Form calls = tool_form(request, /*is_required=*/true);
    form.expression = grammar::choice({calls.expression, form.expression});
    form.key = calls.key + form.key;
  }
  return behind_reasoning(request, std::move(form));
}

api::ApiError ConstraintFactory::problem_of(const api::GenerationRequest& request,
                                            const api::GrammarSource& source, const Form& form,
                                            const Error& error) const {
  const bool is_either = form.param == source.field &&
                         request.tool_constraint.kind != api::ToolConstraint::Kind::kNone;
  if (is_either && grammar::compile(source_form(source).expression)) {
    return api::invalid_parameter("tools", error.message);
  }
  return api::invalid_parameter(form.param, error.message);
}

api::Parsed<ConstraintPtr> ConstraintFactory::make(const api::GenerationRequest& request,
                                                   const api::GenerationItem& item) {
  const bool has_form = item.grammar.kind != api::GrammarSource::Kind::kNone;
  if (!has_form && request.tool_constraint.kind == api::ToolConstraint::Kind::kNone) {
    return ConstraintPtr();
  }
  if (vocabulary_ == nullptr) {
    return api::invalid_parameter(
        has_form ? item.grammar.field : "tools",
        "this model has no end-of-sequence token, so its output cannot be "
        "held to a grammar");
  }
  const Form form = form_of(request, item.grammar);
  GrammarPtr grammar = cache_.find(form.key);
  if (grammar == nullptr) {
    Result<GrammarPtr> compiled = grammar::compile(form.expression);
    if (!compiled) return problem_of(request, item.grammar, form, compiled.error());
    grammar = std::move(*compiled);
    cache_.add(form.key, grammar);
  }
  return grammar->new_constraint(vocabulary_);
}

}  // namespace fathom::answer
