#!/usr/bin/env python3
"""Finds lists in braces that are arguments of a call which is made only under a condition: a part of `?:`, `&&` or `||`.

    return is_empty ? one : sequence({one, other});      // refused; `if (is_empty) return one;` is the way

g++ 12 destroys such a list's elements although they were never made, where the condition did not hold and something
throws later, and twice where making one of them throws: memory that runs out would corrupt memory instead of ending a
request. Lists of numbers and pointers have nothing to destroy, but are told apart by their types only, so they are
refused too.

    tools/check_lists.py [--root DIR]
"""
import argparse
import pathlib
import re
import sys

FOLDERS = ("src", "apps")
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|#[^\n]*(?:\\\n[^\n]*)*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                   r"|'(?:\\.|[^'\\\n])+'|\w+|(?<= )&&(?=\s)|(?<= )\|\|(?=\s)|::|->|\S", re.S)
# What stands before the brace of a body; any other brace opens a list.
BEFORE_BODY = {")", "]", "else", "do", "try", "const", "mutable", "noexcept", "override", ";", "{", "}", ""}


def tokens_of(text):
    """(token, where it begins) of the code."""
    for match in TOKEN.finditer(text):
        if not match[0].startswith(("//", "/*", "#")):
            yield match[0], match.start()


def conditional_lists(text):
    """The lines of the lists that are arguments, in a part of an expression that is computed only sometimes."""
    lines, open_brackets, before = [], [["{", False]], ""  # [bracket, a condition came in this part]
    tokens = list(tokens_of(text))
    for (token, begin), (after, _) in zip(tokens, tokens[1:] + [("", 0)]):
        if token == "{" and before == "(" and after not in ("}", ".") and is_conditional(open_brackets):
            lines.append(text.count("\n", 0, begin) + 1)
        if token in "([{":
            is_list = token == "{" and before not in BEFORE_BODY
            open_brackets.append(["(" if is_list else token, False])
        elif token in ")]}":
            if len(open_brackets) > 1:
                open_brackets.pop()
        elif token in ("?", "&&", "||"):
            open_brackets[-1][1] = True
        elif token in (";", ","):
            open_brackets[-1][1] = False
        before = token
    return lines


def is_conditional(open_brackets):
    for bracket, came in reversed(open_brackets):
        if came or bracket == "{":
            return came
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."))
    root = parser.parse_args().root
    found = 0
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            for line in conditional_lists(file.read_text(encoding="utf-8")):
                print(f"{file.relative_to(root)}:{line}: a list in braces as an argument of a call under a condition; write an if")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
