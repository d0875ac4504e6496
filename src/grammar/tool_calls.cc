#include "grammar/tool_calls.h"

#include <utility>

#include "base/check.h"

namespace fathom::grammar {
namespace {

Expression space() { return optional(choice({literal(" "), literal("\n")})); }

Expression arguments_of(const Tool& tool) {
  if (tool.input) return json_text_member("input", *tool.input);
  if (tool.parameters_schema.empty()) return json_object();
  // A function takes the arguments that it names.
  return json_schema(tool.parameters_schema,
                     {.unlisted = tool.strict ? Unlisted::kNowhere : Unlisted::kLeftOut});
}

Expression call_of(const ToolCallSyntax& syntax, const Tool& tool) {
  std::vector<Expression> parts = {marker(syntax.call_begin)};
  for (const ToolCallStep& step : syntax.steps) {
    switch (step.kind) {
      case ToolCallStep::Kind::kLiteral:
        parts.push_back(marker(step.literal));
        break;
      case ToolCallStep::Kind::kSpace:
        parts.push_back(space());
        break;
      case ToolCallStep::Kind::kName:
        parts.push_back(literal(tool.name));
        break;
      case ToolCallStep::Kind::kCallId:
        parts.push_back(literal("functions." + tool.name + ":"));
        parts.push_back(choice({literal("0"), sequence({character({{'1', '9'}}),
                                                        repeat(character({{'0', '9'}}), 0, 2)})}));
        break;
      case ToolCallStep::Kind::kObject:
        parts.push_back(arguments_of(tool));
        break;
    }
  }
  return sequence(std::move(parts));
}

}  // namespace

Expression tool_calls(const ToolCallSyntax& syntax, const std::vector<Tool>& tools,
                      const ToolCallOptions& options) {
  FATHOM_CHECK(!tools.empty(), "tool calls without a tool");
  std::vector<Expression> calls;
  for (const Tool& tool : tools) calls.push_back(call_of(syntax, tool));
  const Expression call = choice(std::move(calls));
  const Expression more = repeat(sequence({space(), call}), 0, options.parallel ? kUnbounded : 0);
  // The section's begin is read by `before`.
  const Expression section = sequence({space(), call, more, space(), marker(syntax.section_end)});
  std::vector<Expression> parts;
  if (options.reasoning_end) parts.push_back(text_until(*options.reasoning_end));
  if (options.required) {
    if (options.reasoning_end) parts.push_back(repeat(literal("\n"), 0, 2));
    parts.push_back(marker(syntax.section_begin));
    parts.push_back(section);
  } else {
    parts.push_back(
        free_text({.triggers = {{.marker = syntax.section_begin, .then = section, .ends = true}}}));
  }
  return sequence(std::move(parts));
}

}  // namespace fathom::grammar
