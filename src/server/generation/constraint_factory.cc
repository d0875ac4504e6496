#include "server/generation/constraint_factory.h"

#include <algorithm>
#include <utility>

#include "text/chat_markup.h"
#include "text/tool_call_form.h"

namespace fathom::server {
namespace {

using grammar::Expression;

std::shared_ptr<const grammar::Vocabulary> make_vocabulary(
    const ConstraintFactory::Config& config) {
  if (config.eos_token_ids.empty()) return nullptr;
  // Added tokens are no text, whether the file calls them special or not.
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

Expression source_expression(const GrammarSource& source) {
  switch (source.kind) {
    case GrammarSource::Kind::kJsonSchema:
      return grammar::json_schema(source.text);
    case GrammarSource::Kind::kRegex:
      return grammar::regex(source.text);
    case GrammarSource::Kind::kEbnf:
      return grammar::ebnf(source.text);
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

grammar::Tool tool_of(const json::Value& value) {
  const json::Value& function = value.contains("function") ? value["function"] : value;
  grammar::Tool tool{.name = function.value("name", ""), .parameters_schema = ""};
  const auto parameters = function.find("parameters");
  if (parameters != function.end() && parameters->is_object()) {
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

ConstraintFactory::Form ConstraintFactory::tool_form(const GenerationRequest& request) const {
  const ToolConstraint& constraint = request.tool_constraint;
  std::vector<grammar::Tool> tools;
  for (const json::Value& value : constraint.tools) tools.push_back(tool_of(value));
  grammar::ToolCallOptions options{.required = constraint.kind == ToolConstraint::Kind::kRequired,
                                   .parallel = constraint.parallel};
  if (request.starts_in_reasoning) options.reasoning_end = marker(text::markup::kThinkEnd);
  std::string key = "tools";
  key += options.required ? 'r' : 'o';
  key += options.parallel ? 'p' : '1';
  key += options.reasoning_end ? 't' : '-';
  key += std::to_string(static_cast<int>(request.chat_format)) + json::dump(constraint.tools);
  return {.expression = grammar::tool_calls(tool_syntax(request.chat_format), tools, options),
          .key = std::move(key),
          .param = "tools"};
}

ConstraintFactory::Form ConstraintFactory::output_form(const GenerationRequest& request,
                                                       const GrammarSource& source) const {
  Form form{.expression = source_expression(source),
            .key = std::to_string(static_cast<int>(source.kind)),
            .param = source.field};
  const bool is_chat = request.endpoint == Endpoint::kChat;
  // Up to two line breaks after </think> belong to it, as the output parser has it.
  const Expression breaks = grammar::repeat(grammar::literal("\n"), 0, 2);
  const grammar::Marker think_end = marker(text::markup::kThinkEnd);
  if (is_chat && request.starts_in_reasoning) {
    form.expression = grammar::sequence({grammar::text_until(think_end), breaks, form.expression});
    form.key += 't';
  } else if (is_chat && request.chat_format == text::ChatFormat::kR1_0528) {
    // This model opens its reasoning by itself.
    const Expression thinking =
        grammar::sequence({grammar::marker(marker(text::markup::kThinkBegin)),
                           grammar::text_until(think_end), breaks});
    form.expression = grammar::sequence({grammar::optional(thinking), form.expression});
    form.key += 'w';
  } else {
    form.key += '-';
  }
  form.key += source.text;
  return form;
}

Parsed<ConstraintPtr> ConstraintFactory::make(const GenerationRequest& request,
                                              const GenerationItem& item) {
  using Tools = ToolConstraint::Kind;
  const Tools tools = request.tool_constraint.kind;
  const bool has_form = item.grammar.kind != GrammarSource::Kind::kNone;
  if (!has_form && tools == Tools::kNone) return ConstraintPtr();
  if (vocabulary_ == nullptr) {
    return invalid_parameter(has_form ? item.grammar.field : "tools",
                             "this model has no end-of-sequence token, so its output cannot be "
                             "held to a grammar");
  }
  const bool use_tools = tools == Tools::kRequired || !has_form;
  const Form form = use_tools ? tool_form(request) : output_form(request, item.grammar);
  GrammarPtr grammar = cache_.find(form.key);
  if (grammar == nullptr) {
    Result<GrammarPtr> compiled = grammar::compile(form.expression);
    if (!compiled) return invalid_parameter(form.param, compiled.error().message);
    grammar = std::move(*compiled);
    cache_.add(form.key, grammar);
  }
  return grammar->new_constraint(vocabulary_);
}

}  // namespace fathom::server
