#!/usr/bin/env python3
"""Wraps the prose of Markdown files at column 100, in place.

    tools/wrap_docs.py FILE...

Paragraphs and items of lists are wrapped; headings, tables, blocks of code, quotes and HTML stay as they are. A code span or a
word, so a link's address too, is never broken, and none that would begin a list or a heading comes to begin a line.
"""
import re
import sys

WIDTH = 100
FENCE = re.compile(r"^ *```")
ITEM = re.compile(r"^( *)([-*+]|\d+[.)]) +(.*)$")
FIXED = re.compile(r"^ *(\||#|<|>|$)")
CODE = re.compile(r"^    ")  # where no paragraph and no list is open
SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
BEGINS_SOMETHING = re.compile(r"(?:[-+*>|=#]+|\d+[.)])$|[|#<>]|```")


def words(text):
    """The words of a paragraph, a code span being a part of one."""
    kept = SPAN.sub(lambda span: span[0].replace(" ", "\0"), text)
    joined = []
    for word in kept.split():
        if joined and BEGINS_SOMETHING.match(word):
            joined[-1] += " " + word
        else:
            joined.append(word)
    return [word.replace("\0", " ") for word in joined]


def filled(text, first, rest):
    """The lines of a paragraph, behind `first` and then behind `rest`."""
    lines, line = [], first
    for word in words(text):
        if line.strip() and line not in (first, rest) and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = rest
        line += word if line in (first, rest) else " " + word
    return lines + [line]


def wrapped(text):
    """The text of a file with its prose wrapped."""
    out, paragraph, fenced, listed = [], None, False, False  # paragraph: [text, first indent, indent of the rest]

    def close():
        nonlocal paragraph
        if paragraph:
            out.extend(filled(*paragraph))
        paragraph = None

    for line in text.splitlines():
        if FENCE.match(line):
            close()
            fenced = not fenced
        elif not fenced and (item := ITEM.match(line)):
            close()
            lead = f"{item[1]}{item[2]} "
            paragraph, listed = [item[3], lead, " " * len(lead)], True
            continue
        elif not fenced and paragraph is None and not listed and CODE.match(line):
            pass
        elif not fenced and not FIXED.match(line):
            indent = line[:len(line) - len(line.lstrip())]
            listed = listed and (bool(indent) or paragraph is not None)
            paragraph = paragraph or ["", indent, indent]
            paragraph[0] += " " + line.strip()
            continue
        close()
        listed = listed and not line.startswith("#")
        out.append(line)
    close()
    return "\n".join(out) + "\n"


def main():
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            before = file.read()
        after = wrapped(before)
        if after != before:
            with open(name, "w", encoding="utf-8") as file:
                file.write(after)


if __name__ == "__main__":
    main()
