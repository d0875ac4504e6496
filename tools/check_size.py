#!/usr/bin/env python3
"""Checks the length of files, functions and modules, and the width of comments.

    tools/check_size.py [--root DIR] [--list N]

Files: host sources, scripts and kernels at most 600 lines, tests at most 800. Functions in C++ sources
outside tests at most 80 lines (a table of test cases may be longer). tools/size_exceptions.txt holds what is
longer ("path lines" or "path:function lines"); an entry that is no longer needed, or larger than it has to be,
fails too, so the list only shrinks. A module (src/modules.txt) has at most 5000 lines of C++ and CUDA, all of them
counted, and no exception. Comments end at column 120; code is the formatter's, which has 100.
`--list N` prints the N longest files, functions and modules instead.
"""
import argparse
import pathlib
import re
import sys

from check_deps import module_of, read_table

MODULE_LIMIT = 5000
FILE_LIMIT, TEST_FILE_LIMIT, FUNCTION_LIMIT, COMMENT_LIMIT = 600, 800, 80, 120
FOLDERS = ("src", "apps", "tests", "bench", "tools", "tune", "cmake")
CPP_SUFFIXES = {".h", ".cc"}
CUDA_SUFFIXES = {".cu", ".cuh"}
HASH_SUFFIXES = {".py", ".sh", ".cmake"}  # comments begin with #
FILE_SUFFIXES = CPP_SUFFIXES | CUDA_SUFFIXES | {".py", ".sh"}

# Comments and literals, in one pattern so that none starts inside another.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]{0,16})\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
SCOPE = re.compile(r'^\s*(?:template\s*<.*>\s*)?(?:inline\s+)?(?:namespace|class|struct|union|enum|extern\s*"")\b', re.S)
# What may stand between the parameter list and the body.
TAIL = re.compile(r"^\s*(?:const|noexcept|override|final|mutable|try|&&?|->[^(){}]*|requires[^{}]*|\s)*$", re.S)
NAME = re.compile(r"(operator\s*[^\s(]+|operator\s*\(\)|~?[A-Za-z_]\w*)\s*\(")


def blank(match):
    """The same lines with nothing on them; string literals keep their quotes."""
    text = match.group(0)
    return ('""' if text[0] in '"R\'' else "") + "\n" * text.count("\n")


def function_name(head):
    """The last name before the parameter list that is not inside <...> of a template."""
    match = NAME.search(re.sub(r"template\s*<[^{]*?>\s*(?=[A-Za-z_\[])", "", head))
    return match.group(1) if match else "lambda"


def is_body(head):
    """Whether the brace after `head` opens a function body (else an initialiser)."""
    close = max(head.rfind(")"), head.rfind("\x01"))
    return close >= 0 and TAIL.match(head[close + 1:]) is not None


def functions(text):
    """[(name, first line, number of lines)] of the function definitions in C++ source."""
    text = DIRECTIVE.sub(blank, NOISE.sub(blank, text))
    found, stack, head, head_line, line = [], [], "", 1, 1
    for char in text:
        if char == "\n":
            line += 1
        if stack and stack[-1][0] in ("function", "other", "member"):
            # Inside a body or an initialiser only the braces count.
            if char == "{":
                stack.append(("other", None, line))
            elif char == "}":
                kind, name, start = stack.pop()
                if kind == "function":
                    found.append((name, start, line - start + 1))
                    head = ""
                elif kind == "member":
                    head += "\x01"
                elif not stack or stack[-1][0] == "scope":
                    head = ""
            continue
        if char == "{":
            if SCOPE.match(head) and not re.search(r"\)\s*$", head):
                stack.append(("scope", None, line))
                head = ""
            elif "(" in head and is_body(head):
                stack.append(("function", function_name(head), head_line))
            elif "(" in head and re.search(r"\)[^()]*:|\x01", head):
                stack.append(("member", None, line))  # a member in a constructor's initialiser list
            else:
                stack.append(("other", None, line))
        elif char == ":" and head.strip() in ("public", "protected", "private"):
            head = ""
        elif char in ";}":
            if char == "}" and stack:
                stack.pop()
            head = ""
        else:
            if not head.strip():
                head, head_line = "", line
            head += char
    return found


def sources(root, suffixes):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes:
                yield folder, path, path.read_text(encoding="utf-8")


def comment_lines(suffix, text):
    """[(line, columns up to the end of its comment)] of the comments from // or, on lines of their own, from #."""
    if suffix in HASH_SUFFIXES:
        return [(i, len(line)) for i, line in enumerate(text.split("\n"), 1) if line.lstrip().startswith("#")]
    ends = [match.end() for match in NOISE.finditer(text) if match.group(0).startswith("//")]
    return [(text.count("\n", 0, end) + 1, end - text.rfind("\n", 0, end) - 1) for end in ends]


def wide_comments(root):
    problems = []
    for _, path, text in sources(root, CPP_SUFFIXES | CUDA_SUFFIXES | HASH_SUFFIXES):
        for line, columns in comment_lines(path.suffix, text):
            if columns > COMMENT_LIMIT:
                problems.append(f"{path.relative_to(root).as_posix()}:{line}: a comment up to column {columns}, "
                                f"at most {COMMENT_LIMIT}")
    return problems


def measure(root):
    """({path: lines}, {path:function: lines})"""
    files, bodies = {}, {}
    for folder, path, text in sources(root, FILE_SUFFIXES):
        name = path.relative_to(root).as_posix()
        files[name] = text.count("\n")
        if path.suffix in CPP_SUFFIXES and folder != "tests":
            for function, _, lines in functions(text):
                key = f"{name}:{function}"
                bodies[key] = max(bodies.get(key, 0), lines)
    return files, bodies


def module_lines(root, files):
    """{module: lines} from {path: lines}."""
    table, _ = read_table(root / "src" / "modules.txt")
    modules = dict.fromkeys(table, 0)
    for name, lines in files.items():
        module = module_of(table, name)
        if module and pathlib.PurePosixPath(name).suffix in CPP_SUFFIXES | CUDA_SUFFIXES:
            modules[module] += lines
    return modules


def large_modules(modules):
    return [f"module {module}: {lines} lines, at most {MODULE_LIMIT}: part it (src/modules.txt)"
            for module, lines in sorted(modules.items()) if lines > MODULE_LIMIT]


def limit_of(key):
    if ":" in key:
        return FUNCTION_LIMIT
    return TEST_FILE_LIMIT if key.startswith("tests/") else FILE_LIMIT


def read_exceptions(path):
    entries = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            line = line.split("#", 1)[0].strip()
            if line:
                key, lines = line.rsplit(None, 1)
                entries[key] = int(lines)
    return entries


def problems_of(sizes, exceptions):
    problems = []
    for key, lines in sorted(sizes.items()):
        allowed = max(limit_of(key), exceptions.get(key, 0))
        if lines > allowed:
            problems.append(f"{key}: {lines} lines, at most {allowed}")
    for key, allowed in sorted(exceptions.items()):
        lines = sizes.get(key)
        if lines is None or lines <= limit_of(key):
            problems.append(f"size_exceptions.txt: {key} needs no exception any more, remove it")
        elif lines < allowed:
            problems.append(f"size_exceptions.txt: {key} has {lines} lines now, lower its {allowed}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--list", type=int, metavar="N")
    args = parser.parse_args()
    files, bodies = measure(args.root)
    modules = module_lines(args.root, files)
    if args.list:
        for sizes in (files, bodies, modules):
            for key in sorted(sizes, key=sizes.get, reverse=True)[:args.list]:
                print(f"{sizes[key]:5} {key}")
        return 0
    problems = problems_of({**files, **bodies}, read_exceptions(args.root / "tools" / "size_exceptions.txt"))
    problems += large_modules(modules) + wide_comments(args.root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
