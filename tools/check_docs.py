#!/usr/bin/env python3
"""Holds the documents to the tree: every path that a *.md names exists, every link leads somewhere, the tables
of docs/reference/modules.md have the rows of src/modules.txt, prose ends at column 100 (tools/wrap_docs.py wraps it),
and in docs/contracts the rules of a numbered section are numbered through, none longer than three lines. Code may cite
a section ("docs/contracts/runner.md, section 8") or a rule ("docs/contracts/runner.md, 8.2") that is there.

    tools/check_docs.py [--root DIR]

A path is a word in backticks that begins with a folder of the tree, or ends like a source file; `src/` may be left
out, `{a,b}` and `*` may stand in it. Not looked at: what is built (`build/...`), words with an upper-case stand-in
(`models/configs/NAME`), and fenced blocks.
"""
import argparse
import glob
import itertools
import pathlib
import re
import sys

from check_deps import ROW_NAME, read_table
from wrap_docs import WIDTH, wrapped

RULE = re.compile(r"- (?:\*\*(\d+)\.(\d+)\*\* )?")
RULE_LINES = 3
CITATION = re.compile(r"docs/contracts/(\w+\.md),\s+(?://\s+)?(?:section (\d+)|(\d+\.\d+))")
CODE_FOLDERS, CODE_SUFFIXES = ("src", "apps", "tests", "bench"), {".h", ".cc", ".cu", ".cuh"}
FOLDERS = (".ci", "apps", "bench", "cmake", "deploy", "docs", "models", "src", "tests", "tools")
SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".inc", ".py", ".sh", ".md", ".json", ".jsonl", ".txt", ".svg", ".cmake")
WORD = re.compile(r"[A-Za-z0-9_.*{},/+-]+")
STAND_IN = re.compile(r"(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z.])")
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
TABLE_ROW = re.compile(rf"^\| `({ROW_NAME})` \|", re.M)


def without_fences(text):
    """The same lines, those of fenced blocks empty."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


def expanded(word):
    """`a/{b,c}.h` as its two words."""
    parts = [part.split(",") for part in re.split(r"[{}]", word)]
    if len(parts) == 1:
        return [word]
    fixed_and_choices = [part if i % 2 else [",".join(part)] for i, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*fixed_and_choices)]


def is_path(word):
    if "/" not in word.rstrip("/") or not WORD.fullmatch(word) or STAND_IN.search(word):
        return False
    return not word.startswith(("/", "build/")) and (word.split("/")[0] in FOLDERS or word.endswith(SUFFIXES))


def anchor_of(heading):
    """As GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


class Documents:
    def __init__(self, root):
        self.root = root
        self.problems = []

    def exists(self, path):
        if re.match(r"src/|\.ci/", path) is None and self.found("src/" + path):
            return True
        return self.found(path)

    def found(self, path):
        return any(glob.iglob(str(self.root / path)))

    def report(self, document, text, offset, what):
        line = text.count("\n", 0, offset) + 1
        self.problems.append(f"{document.relative_to(self.root)}:{line}: {what}")

    def check_paths(self, document, text):
        for span in SPAN.finditer(text):
            for word in (word.strip(".,;:()'\"") if not word.startswith(".") else word for word in span[1].split()):
                if is_path(word):
                    for path in expanded(word):
                        if not self.exists(path):
                            self.report(document, text, span.start(), f"'{path}' does not exist")

    def check_links(self, document, text):
        for link in LINK.finditer(text):
            path, _, anchor = link[1].partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = document.parent / path if path else document
            if not target.exists():
                self.report(document, text, link.start(), f"the link '{link[1]}' leads to nothing")
            elif anchor and target.suffix == ".md":
                headings = HEADING.findall(without_fences(target.read_text(encoding="utf-8")))
                if anchor not in map(anchor_of, headings):
                    self.report(document, text, link.start(), f"the link '{link[1]}' names no heading")

    def check_width(self, document, text):
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > WIDTH and wrapped(line) != line + "\n":
                self.problems.append(f"{document.relative_to(self.root)}:{number}: ends at column {len(line)}, "
                                     f"the limit is {WIDTH}: tools/wrap_docs.py wraps it")

    def check_rules(self, document, text):
        section, rules = None, 0
        for number, (line, *rest) in enumerate(self.following(text), 1):
            if line.startswith("## "):
                numbered = re.match(r"## (\d+)\.", line)
                section, rules = numbered and numbered[1], 0
            elif section and (rule := RULE.match(line)):
                rules += 1
                if rule.groups() != (section, str(rules)):
                    self.problems.append(f"{document.relative_to(self.root)}:{number}: is rule {section}.{rules}")
                if len(rest) == RULE_LINES and all(below.startswith("  ") for below in rest):
                    self.problems.append(f"{document.relative_to(self.root)}:{number}: rule {section}.{rules} is longer "
                                         f"than {RULE_LINES} lines")

    def check_citations(self):
        for source in sorted(path for folder in CODE_FOLDERS for path in (self.root / folder).rglob("*")):
            if source.suffix not in CODE_SUFFIXES:
                continue
            text = source.read_text(encoding="utf-8")
            for cited in CITATION.finditer(text):
                contract = self.root / "docs" / "contracts" / cited[1]
                rules = contract.read_text(encoding="utf-8") if contract.exists() else ""
                if (f"\n## {cited[2]}." if cited[2] else f"\n- **{cited[3]}** ") not in "\n" + rules:
                    self.report(source, text, cited.start(), f"{cited[1]} has no {cited[2] or cited[3]}")

    @staticmethod
    def following(text):
        """Each line with as many behind it as a rule has."""
        lines = text.split("\n")
        return (lines[i:i + RULE_LINES + 1] for i in range(len(lines)))

    def check_module_table(self, document, text):
        table, _ = read_table(self.root / "src" / "modules.txt")
        rows = TABLE_ROW.findall(text)
        for module in sorted(table.keys() - set(rows)):
            self.report(document, text, 0, f"the table of modules has no row for {module}")
        for module in sorted(set(rows) - table.keys()):
            self.report(document, text, 0, f"the table of modules has {module}, which src/modules.txt has not")

    def check(self):
        for document in sorted(self.root.rglob("*.md")):
            if any(part == "build" or part.startswith(".") for part in document.relative_to(self.root).parts):
                continue
            text = without_fences(document.read_text(encoding="utf-8"))
            self.check_paths(document, text)
            self.check_links(document, text)
            self.check_width(document, text)
            if document.parent == self.root / "docs" / "contracts":
                self.check_rules(document, text)
            if document == self.root / "docs" / "reference" / "modules.md":
                self.check_module_table(document, text)
        self.check_citations()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    documents = Documents(parser.parse_args().root.resolve())
    documents.check()
    for problem in documents.problems:
        print(problem, file=sys.stderr)
    return 1 if documents.problems else 0


if __name__ == "__main__":
    sys.exit(main())
