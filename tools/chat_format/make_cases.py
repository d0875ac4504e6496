#!/usr/bin/env python3
"""Writes tests/data/chat-templates/own_cases.json: conversations of our own and what published templates
make of them, rendered the way Hugging Face transformers does.

    python3 tools/chat_format/make_cases.py v3=v3.jinja kimi-k2=kimi.jinja … > own_cases.json
    python3 tools/chat_format/make_cases.py --reasoning v3.2=deepseek_v32.py > reasoning_cases.json

NAME is a chat format; the template is a file, or a tokenizer_config.json that holds one. Templates are read,
never stored: they belong to the checkpoints. An existing file's other formats are kept with --keep FILE.
V3.2 has no template but an encoder: mlx_lm/chat_templates/deepseek_v32.py of mlx-lm 0.32.2 (PyPI) is a copy of it.
--reasoning makes other conversations, for formats that show what earlier answers thought.
Needs jinja2. A conversation that a template cannot render is left out for that format.
"""
import argparse
import importlib.util
import json
import random
import sys
import types

import jinja2
import jinja2.sandbox

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
SEED = 20251
TEXTS = ["Hello!", "", "two\nlines", "  spaces  ", "<think>\na\n</think>\n\nb", "x</think>y</think>z",
         "你好 🌍", "\"quoted\" \\ back", "a'b & <c>", "\n", "tab\there", "</think>"]
# Values of every kind, as V3.2 writes each parameter by its type.
MIXED = ["{\"s\": \" a\\n\\\"b\\\" </x> & \", \"f\": 1.50, \"e\": 1e5, \"i\": -7, \"b\": true, \"z\": null}",
         "{\"l\": [\"é\", {\"k\": []}], \"o\": {}, \"empty\": \"\", \"ключ\": \"<think>\"}"]
ARGUMENTS = ["{}", "{\"a\": 1}", "{\"city\": \"Oslo\", \"n\": [1, 2.5, null]}", "{\"t\": \"<tag> '\"}"]


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def template_of(path):
    if path.endswith(".py"):
        return Encoder(path)
    with open(path, encoding="utf-8") as file:
        source = file.read()
    if path.endswith(".json"):
        source = json.loads(source)["chat_template"]
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = tojson
    return environment.from_string(source)


def tool(rng, index):
    function = {"name": f"tool_{index}", "description": rng.choice(["", "Does it.", "It's \"it\"\n"]),
                "parameters": {"type": "object", "properties": {"é": {"type": "string"}, "n": {"default": 0.5}},
                               "required": []}}
    return {"type": "function", "function": function}


def turn_with_calls(rng, counter):
    calls = []
    for index in range(rng.randint(1, 3)):
        name = f"tool_{rng.randint(0, 2)}"
        calls.append({"id": f"functions.{name}:{counter + index}", "type": "function",
                      "function": {"name": name, "arguments": rng.choice(ARGUMENTS)}})
    content = rng.choice([None, None] + TEXTS)
    messages = [{"role": "assistant", "content": content, "tool_calls": calls}]
    for call in calls[:rng.randint(0, len(calls))]:
        result = {"role": "tool", "content": rng.choice(TEXTS), "tool_call_id": call["id"]}
        if rng.random() < 0.5:
            result["name"] = call["function"]["name"]
        messages.append(result)
    return messages


def conversation(rng):
    messages = []
    has_tools = rng.random() < 0.5
    for _ in range(rng.randint(0, 5)):
        kind = rng.choice(["system", "user", "user", "assistant", "assistant"] + ["calls"] * 3 * has_tools)
        if kind == "calls":
            messages += turn_with_calls(rng, len(messages))
        else:
            messages.append({"role": kind, "content": rng.choice(TEXTS)})
    case = {"messages": messages, "add_generation_prompt": rng.random() < 0.7,
            "thinking": rng.random() < 0.3}
    if has_tools and rng.random() < 0.8:
        case["tools"] = [tool(rng, index) for index in range(rng.randint(1, 3))]
    return case


def reasoning_turn(rng, counter):
    """A question, a chain of calls with all their results, an answer: or a part of that."""
    messages = [{"role": "user", "content": rng.choice(TEXTS)}]
    for _ in range(rng.randint(0, 2)):
        calls = [{"id": f"call_{counter + len(messages)}_{index}", "type": "function",
                  "function": {"name": f"tool_{rng.randint(0, 2)}", "arguments": rng.choice(ARGUMENTS + MIXED)}}
                 for index in range(rng.randint(1, 2))]
        message = {"role": "assistant", "content": rng.choice([None, ""] + TEXTS), "tool_calls": calls}
        if rng.random() < 0.8:
            message["reasoning_content"] = rng.choice(TEXTS)
        messages.append(message)
        messages += [{"role": "tool", "content": rng.choice(TEXTS), "tool_call_id": call["id"]} for call in calls]
    if rng.random() < 0.6:
        messages.append({"role": "assistant", "content": rng.choice(TEXTS),
                         "reasoning_content": rng.choice([text for text in TEXTS if text])})
    if rng.random() < 0.2:
        messages.append({"role": "system", "content": rng.choice(TEXTS)})
    return messages


def reasoning_conversation(rng):
    messages = [{"role": "system", "content": rng.choice(TEXTS)}] if rng.random() < 0.6 else []
    for _ in range(rng.randint(1, 3)):
        messages += reasoning_turn(rng, len(messages))
    case = {"messages": messages, "add_generation_prompt": rng.random() < 0.7, "thinking": rng.random() < 0.7}
    if rng.random() < 0.7:
        case["tools"] = [tool(rng, index) for index in range(rng.randint(1, 3))]
    return case


class Encoder:
    """V3.2's encoder with what a request has besides messages."""

    def __init__(self, path):
        # It imports one function for tools that are Python functions.
        names = ["transformers", "transformers.utils", "transformers.utils.chat_template_utils"]
        for name in names:
            sys.modules.setdefault(name, types.ModuleType(name))
        sys.modules[names[-1]].get_json_schema = None
        spec = importlib.util.spec_from_file_location("encoder", path)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def render(self, messages, add_generation_prompt, thinking, tools=None, **_):
        messages = [dict(message) for message in messages]
        if tools:
            if not messages or messages[0]["role"] != "system":
                messages.insert(0, {"role": "system", "content": ""})
            messages[0]["tools"] = tools
        text = self.module.encode_messages(messages, thinking_mode="thinking" if thinking else "chat")
        if not add_generation_prompt and messages and messages[-1]["role"] in ("user", "tool"):
            for tag in ("<think>", "</think>"):
                text = text.removesuffix("\n\n" + tag) if messages[-1]["role"] == "tool" else \
                    text.removesuffix("<｜Assistant｜>" + tag)
        return text


def render(template, case):
    if isinstance(template, Encoder):
        try:
            return template.render(**case)
        except AssertionError:
            return None
    try:
        return template.render(bos_token=BOS, eos_token=EOS, **case)
    except (jinja2.TemplateError, TypeError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("templates", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--keep", metavar="FILE", help="keep the formats of this file that are not given")
    parser.add_argument("--num-cases", type=int, default=60)
    parser.add_argument("--reasoning", action="store_true", help="conversations with reasoning and chains of calls")
    arguments = parser.parse_args()
    rng = random.Random(SEED)
    make = reasoning_conversation if arguments.reasoning else conversation
    cases = [make(rng) for _ in range(arguments.num_cases)]
    expected = {}
    if arguments.keep:
        with open(arguments.keep, encoding="utf-8") as file:
            kept = json.load(file)
        if kept["cases"] != cases:
            raise SystemExit(f"{arguments.keep}: other conversations than this script makes")
        expected = kept["expected"]
    for entry in arguments.templates:
        name, path = entry.split("=", 1)
        template = template_of(path)
        expected[name] = [render(template, case) for case in cases]
    print("{\"cases\": [\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "],")
    rows = [json.dumps(name) + ": [\n" + ",\n".join(json.dumps(t, ensure_ascii=False) for t in texts) + "]"
            for name, texts in expected.items()]
    print("\"expected\": {\n" + ",\n".join(rows) + "}}")


if __name__ == "__main__":
    main()
