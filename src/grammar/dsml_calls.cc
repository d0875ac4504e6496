#include "grammar/dsml_calls.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/schema/dsml_form.h"

namespace fathom::grammar {
namespace {

Expression parameters_of(const Marker& mark, const Tool& tool) {
  if (tool.input) return dsml_parameter(mark, literal("input"), DsmlKind::kText, *tool.input);
  // A function takes the arguments that it names.
  return dsml_parameters(tool.parameters_schema, mark,
                         {.unlisted = tool.strict ? Unlisted::kNowhere : Unlisted::kLeftOut});
}

Expression call_of(const Marker& mark, const Tool& tool) {
  return sequence({literal("<"), marker(mark), literal("invoke name=\"" + tool.name + "\">\n"),
                   parameters_of(mark, tool), literal("\n</"), marker(mark), literal("invoke>")});
}

// Free text, and perhaps a section, of which `rest` stands behind the mark.
Expression text_or_section(const Marker& mark, const Expression& rest) {
  const std::string begin = "<" + mark.text, end = "</" + mark.text;
  if (mark.token < 0) {
    return free_text(
        {.triggers = {{.marker = {begin, -1}, .then = rest, .ends = true}}, .forbidden = {end}});
  }
  return sequence({free_text({.forbidden = {begin, end}}),
                   optional(sequence({literal("<"), marker(mark), rest}))});
}

}  // namespace

Expression dsml_calls(const Marker& mark, const std::vector<Tool>& tools,
                      const ToolCallOptions& options) {
  FATHOM_CHECK(!tools.empty(), "tool calls without a tool");
  std::vector<Expression> calls;
  for (const Tool& tool : tools) calls.push_back(call_of(mark, tool));
  const Expression call = choice(std::move(calls));
  const Expression more =
      repeat(sequence({literal("\n"), call}), 0, options.parallel ? kUnbounded : 0);
  // The bracket and the mark of its begin are read before.
  const Expression section = sequence({literal("function_calls>\n"), call, more, literal("\n</"),
                                       marker(mark), literal("function_calls>")});
  std::vector<Expression> parts;
  if (options.reasoning_end) parts.push_back(text_until(*options.reasoning_end));
  if (options.required) {
    parts.push_back(repeat(literal("\n"), 0, 2));
    parts.push_back(sequence({literal("<"), marker(mark), section}));
  } else {
    parts.push_back(text_or_section(mark, section));
  }
  return sequence(std::move(parts));
}

}  // namespace fathom::grammar
