"""How a conversation is written as one text: the markers of the V3.1 chat format and its offer of tools."""

import json

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
TOOL_CALLS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
TOOL_CALL = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
TOOL_OUT = ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>")
THINK, END_THINK = "<think>", "</think>"
SPECIALS = [BOS, EOS, "<｜▁pad▁｜>", USER, ASSISTANT, THINK, END_THINK, *TOOL_CALLS, *TOOL_CALL, *TOOL_OUT]


def function(name, description):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }


TOOLS = [function("get_weather", "Get the weather of a city"), function("get_time", "Get the local time of a city")]


def tools_prompt(tools):
    """The system text that offers tools; the chat template writes the same."""
    s = "\n\n## Tools\nYou have access to the following tools:\n"
    for t in tools:
        f = t["function"]
        s += f"\n### {f['name']}\nDescription: {f['description']}\n\nParameters: {json.dumps(f['parameters'])}\n"
    return s + (
        "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>"
        "{{additional_tool_calls}}<｜tool▁calls▁end｜>\n\nWhere:\n\n"
        "- `tool_call_name` must be an exact match to one of the available tools\n"
        "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
        "- For multiple tool calls, chain them directly without separators or spaces\n"
    )


def calls_text(calls):
    """Calls as the model writes them; each is (name, arguments as JSON text)."""
    return TOOL_CALLS[0] + "".join(
        TOOL_CALL[0] + name + TOOL_CALL[1] + arguments + TOOL_CALL[2] for name, arguments in calls) + TOOL_CALLS[1]


def render(messages, tools=()):
    """A conversation as the chat template writes it. A message is ("system", text), ("user", text), ("answer", text),
    ("calls", [(name, arguments)]) or ("result", text). An answer or calls behind what the user says begin with </think>."""
    text = BOS + "\n\n".join(said for role, said in messages if role == "system") + (tools_prompt(tools) if tools else "")
    last = None
    for role, said in messages:
        if role == "system":
            continue
        if role == "user":
            text += USER + said
        elif role == "result":
            text += TOOL_OUT[0] + said + TOOL_OUT[1]
        else:
            text += (ASSISTANT + END_THINK if last == "user" else "") + (calls_text(said) if role == "calls" else said) + EOS
        last = role
    return text
