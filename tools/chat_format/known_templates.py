#!/usr/bin/env python3
"""Writes src/text/known_templates.inc: what published chat templates look like, as hashes of their tags and texts.

    python3 tools/chat_format/known_templates.py "v3:DeepSeek-V3:v3.jinja" "v3:DeepSeek-V2.5:v25.json" ... > src/text/known_templates.inc

FORMAT:WHERE IT COMES FROM:FILE; the file is a template, or a tokenizer_config.json that holds one. Templates are read, never
stored: they belong to the checkpoints. src/text/known_templates.cc reads templates the same way; its tests compare the two.
"""
import json
import sys

# The names of ChatFormat.
FORMATS = {"v2": "kV2", "v3": "kV3", "v3-0324": "kV3_0324", "v3-tools": "kV3Tools", "r1": "kR1", "r1-0528": "kR1_0528",
           "r1-tools": "kR1Tools", "v3.1": "kV31", "kimi-k2": "kKimiK2", "moonlight": "kMoonlight"}


def read_literal(source, at):
    """The literal that begins at `at` and where it ends. Line breaks may be written as such or as \\n."""
    quote, text = source[at], source[at]
    at += 1
    while at < len(source) and source[at] != quote:
        if source[at] == "\n":
            text += "\\n"
        else:
            text += source[at]
            if source[at] == "\\" and at + 1 < len(source):
                at += 1
                text += source[at]
        at += 1
    return text + quote, min(len(source), at + 1)


def read_tag(source, at):
    text, end = source[at:at + 2], "}}" if source[at + 1] == "{" else "%}"
    at += 2
    if source[at:at + 1] == "-":
        at += 1
    while at < len(source) and not source.startswith(end, at):
        if source[at] in "'\"":
            literal, at = read_literal(source, at)
            text += literal
        else:
            text += "" if source[at] in " \t\n\r\v\f" else source[at]
            at += 1
    return text.removesuffix("-") + end, min(len(source), at + 2)


def pieces(source):
    """Tags and the texts between them, without white space outside of literals and without comments."""
    at = 0
    while at < len(source):
        if source.startswith("{#", at):
            end = source.find("#}", at)
            at = len(source) if end < 0 else end + 2
            continue
        if source.startswith(("{{", "{%"), at):
            text, at = read_tag(source, at)
        else:
            begin = at
            while at < len(source) and not source.startswith(("{{", "{%", "{#"), at):
                at += 1
            text = "".join(c for c in source[begin:at] if c not in " \t\n\r\v\f")
        if text:
            yield text


def fnv(text):
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def template_of(path):
    with open(path, encoding="utf-8") as file:
        source = file.read()
    return json.loads(source)["chat_template"] if path.endswith(".json") else source


def main():
    print("// Written by tools/chat_format/known_templates.py: hashes of what published chat templates consist of.\n"
          "// clang-format off")
    rows = []
    seen = set()
    for entry in sys.argv[1:]:
        name, origin, path = entry.split(":", 2)
        hashes = tuple(fnv(piece) for piece in pieces(template_of(path)))
        if (name, hashes) in seen:
            continue
        seen.add((name, hashes))
        array = f"kTemplate{len(rows)}"
        rows.append(f"    {{.format = ChatFormat::{FORMATS[name]}, .pieces = {array}}},")
        print(f"// {name}: {origin}\nconstexpr uint32_t {array}[] = {{")
        for i in range(0, len(hashes), 9):
            print("    " + " ".join(f"0x{value:08X}," for value in hashes[i:i + 9]))
        print("};")
    print("constexpr KnownTemplate kKnownTemplates[] = {\n" + "\n".join(rows) + "\n};\n// clang-format on")


if __name__ == "__main__":
    main()
