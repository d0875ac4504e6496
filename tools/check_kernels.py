#!/usr/bin/env python3
"""Checks what holds of every kernel below src/cuda.

    tools/check_kernels.py [--root DIR]                    # each waits for the kernel before it
    tools/check_kernels.py [--root DIR] --launched FILE    # FILE names every kernel that there is

Kernels are launched so that they may begin while the one before still runs (src/cuda/runtime/launch.cuh). So each has to call
wait_for_previous() on every path, itself or in a function that it calls, before any return; and no two have one name,
or traces could not tell them apart. Those of SETTLED may end with one_block_waits_for_previous() instead where all that
they touch is settled. FILE has a kernel's name a line, as traces have it: tests/ops/launched_kernels.cc
writes it. Instances that must be among them are in VARIANTS.
"""
import argparse
import pathlib
import re
import sys

# Kernels that are launched without overlap, and why.
ALONE = {"read_kernel": "times the memory at start-up, between events",
         "echo": "tries one GPU's memory from another at start-up"}

# Kernels that may let their last block alone wait, and why. A kernel is done when all of its blocks are, so that is
# enough for whoever comes next, but not for the blocks that do not wait: all that they touch has to be settled.
SETTLED = {"decode::query_kernel": "MlaQueryArgs::settled: runs beside the choice, of which it needs nothing"}

# Kernels that need several GPUs: the tests of tests/gpu launch them, not the operators'.
SEVERAL_GPUS = "src/cuda/comm/"

# Instances that are other code than their neighbours, as patterns.
BF16, F8, YES, NO = r"(?:\w+::)*[Bb]f16", r"(?:\w+::)*(?:f8|F8E4M3)", "(?:true|1)", "(?:false|0)"
I4, U4, I8_BLOCKS, I8_CHANNELS = (rf"(?:\w+::)*{name}" for name in ("I4x2", "U4x2", "I8Blocks", "I8Channels"))
STREAMED = (BF16, F8, I4, I8_BLOCKS, I8_CHANNELS)
VARIANTS = [
    *(rf"tiled_kernel<.*{dtype}.*, {gathers}[> ]+" for dtype in (*STREAMED, U4) for gathers in (YES, NO)),  # by expert
    *(rf"wide_experts_kernel<{dtype}, {gate_up}>" for dtype in STREAMED for gate_up in (YES, NO)),
    *(rf"expert_product_kernel<{dtype}, .*>" for dtype in STREAMED),
    *(rf"gate_up_pairs_kernel<{dtype}>" for dtype in (BF16, F8)),
    *(rf"down_and_combine_kernel<{dtype}, {shape}>" for dtype, many in ((BF16, "8, 1"), (F8, "8, 2"), (I4, "8, 2"))
      for shape in ("16, 1", many)),
    *(rf"absorbed::absorbed_kernel<{tiles}, {f8}>" for tiles in (1, 4) for f8 in (YES, NO)),
    *(rf"absorbed::stream_kernel<{f8}>" for f8 in (YES, NO)),
    *(rf"absorbed::even_kernel<{f8}>" for f8 in (YES, NO)),
    *(rf"absorbed::two_chunks_kernel<{f8}>" for f8 in (YES, NO)),
    *(rf"absorbed::add_parts_kernel<{few}>" for few in (YES, NO)),
    *(rf"absorbed::wide_kernel<.*{source}>" for source in range(3)),  # RowSource
    *(rf"decode::decode_kernel<{query}, {heads}, 1>" for query in (YES, NO) for heads in (2, 4)),
    *(rf"decode::decode_kernel<{YES}, {heads}, {tokens}>" for heads, tokens in ((2, 2), (2, 3), (2, 4), (4, 2), (4, 3))),
    *(rf"few_{product}_kernel<{one}>" for product in ("gate_up", "down") for one in (YES, NO)),  # one token
    *(rf"top_rows_of_many_kernel<\d+, {plain}>" for plain in (YES, NO)),
    *(rf"batch_product_kernel<.*{dtype}.*>" for dtype in (BF16, F8, U4, I8_BLOCKS, I8_CHANNELS)),
    *(rf"heads_quantize_kernel<.*{tokens}[> ]+" for tokens in (32, 64)),
    *(rf"decode::many_queries_kernel<.*{BF16}, {tokens}, .*>" for tokens in (32, 64, 96, 128)),
    *(rf"zero_point_linear_kernel<{tiles}>" for tiles in (1, 4)),
    *(rf"zero_point_experts_kernel<1, {gate_up}>" for gate_up in (YES, NO)),
    *(rf"wide_product_kernel<{dtype}>" for dtype in STREAMED),
]

TOOL = "tools/check_kernels.py"
WAIT, ONE_WAITS = "wait_for_previous", "one_block_waits_for_previous"
SETTLED_END = re.compile(rf"if \(p\.settled\)\s+{ONE_WAITS}\(\);\s+else\s+{WAIT}\(\);\s*")
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\s*\(")
FUNCTION = re.compile(r"(?:__device__\s+)?__forceinline__\s+[\w:<>&*, ]*?\b(\w+)\s*\(")
NAMESPACE = re.compile(r"^namespace fathom::cuda(?:::([\w:]+))? \{", re.M)


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def closing(text, at):
    """The index behind the bracket that closes the one at `at`."""
    pairs = {"(": ")", "{": "}"}
    close, depth = pairs[text[at]], 0
    for i in range(at, len(text)):
        depth += (text[i] == text[at]) - (text[i] == close)
        if depth == 0:
            return i + 1
    raise ValueError("a bracket stays open")


def body_behind(text, parameters_at):
    """The body of the function whose parameter list begins there; None for a declaration."""
    end = closing(text, parameters_at)
    found = re.match(r"[\s\w]*\{", text[end:])
    if not found:
        return None
    begin = end + found.end() - 1
    return text[begin + 1:closing(text, begin) - 1]


def statements(body):
    """The statements of a block: (condition or None, text), with blocks whole."""
    at, found = 0, []
    while at < len(body):
        head = re.match(r"\s*(?:(if(?:\s+constexpr)?|for|while|switch)\s*\(|(else|do)\b|(\{))", body[at:])
        if head and (head[1] or head[3]):
            condition = None
            start = at + head.end() - 1
            if head[1]:
                end = closing(body, start)
                condition = head[1].split()[0], body[start + 1:end - 1].strip(), "constexpr" in head[1]
                start = end + len(body[end:]) - len(body[end:].lstrip())
            end = closing(body, start) if body[start:start + 1] == "{" else body.find(";", start) + 1
            found.append((condition, body[start:end]))
            at = end
        elif head and head[2]:
            start = at + head.end()
            start += len(body[start:]) - len(body[start:].lstrip())
            if body.startswith("if", start):  # else if
                found.append((("else-if", "", False), ""))
                at = start
                continue
            end = closing(body, start) if body[start:start + 1] == "{" else body.find(";", start) + 1
            found.append((("else", "", False), body[start:end]))
            at = end
        else:
            end = at
            while end < len(body) and body[end] != ";":
                end = closing(body, end) if body[end] in "({" else end + 1
            found.append((None, body[at:end + 1]))
            at = end + 1
    return found


class Waits:
    """When functions wait: "" for always, or the compile-time conditions under which they do."""

    def __init__(self, functions):
        self.functions = functions  # name -> body, of one file and its project includes

    def of(self, body, seen=()):
        """(set of conditions, whether a return comes before the wait)"""
        conditions, before_else = set(), None
        for condition, text in statements(body):
            if condition and condition[0] == "if":
                inner, returns = self.of(text.strip().strip("{}") if text.startswith("{") else text, seen)
                always = "" in inner
                if condition[2] and always:
                    conditions.add(condition[1])
                if returns and not always and not self._always(conditions):
                    return conditions, True
                before_else = always
            elif condition and condition[0] == "else":
                inner, returns = self.of(text.strip()[1:-1] if text.startswith("{") else text, seen)
                if "" in inner and before_else:
                    return {""}, False
                if returns and not self._always(conditions):
                    return conditions, True
            elif condition:  # loops may turn no time
                continue
            else:
                if re.match(r"\s*return\b", text) and not self._called(text, seen):
                    return conditions, True
                conditions |= self._called(text, seen)
            if self._always(conditions):
                return {""}, False
        return conditions, False

    @staticmethod
    def _always(conditions):
        return "" in conditions or any("!" + condition in conditions for condition in conditions)

    def _called(self, text, seen):
        """What the calls of a plain statement wait for."""
        if re.search(rf"\b{WAIT}\s*\(", text):
            return {""}
        found = set()
        for name in re.findall(r"\b(\w+)\s*(?:<[^<>();]*>)?\s*\(", text):
            if name in self.functions and name not in seen:
                found |= self.of(self.functions[name], (*seen, name))[0]
        return found


def functions_of(path, root, seen):
    """name -> body, of a file and of the kernels' headers that it includes"""
    if path in seen or not path.is_file():
        return {}
    seen.add(path)
    text = without_comments(path.read_text(encoding="utf-8"))
    functions = {}
    for included in re.findall(r'^#include "(cuda/[^"]+\.cuh)"', text, re.M):
        functions.update(functions_of(root / "src" / included, root, seen))
    for found in FUNCTION.finditer(text):
        body = body_behind(text, found.end() - 1)
        if body is not None:
            functions[found[1]] = body
    return functions


def find_kernels(root):
    """[(name as traces have it, file, body, functions that it may call)]"""
    kernels = []
    for path in sorted([*root.glob("src/cuda/**/*.cu"), *root.glob("src/cuda/**/*.cuh")]):
        text = without_comments(path.read_text(encoding="utf-8"))
        functions = functions_of(path, root, set())
        inner = NAMESPACE.search(text)
        prefix = inner[1] + "::" if inner and inner[1] else ""
        for found in KERNEL.finditer(text):
            body = body_behind(text, found.end() - 1)
            if body is not None:
                kernels.append((prefix + found[1], path.relative_to(root), body, functions))
    return kernels


def check_sources(kernels):
    problems, first = [], {}
    for name, path, body, functions in kernels:
        if name in first:
            problems.append(f"{path}: {name} has the name of a kernel in {first[name]}")
        first.setdefault(name, path)
        if name in ALONE:
            continue
        for function, of_function in functions.items():
            if ONE_WAITS in of_function:
                problems.append(f"{path}: {name} calls {function}(), which lets one block wait: only a kernel's end may")
        one_waits = ONE_WAITS in body
        end = SETTLED_END.search(body)
        if one_waits and name not in SETTLED:
            problems.append(f"{path}: {name} lets one block wait, and SETTLED of {TOOL} does not say why it may")
        elif name in SETTLED and not one_waits:
            problems.append(f"{path}: {name} is one of SETTLED of {TOOL}, but all of its blocks wait")
        elif one_waits and (body.count(ONE_WAITS) > 1 or end is None or body[end.end():].strip()):
            problems.append(f"{path}: {name} lets one block wait elsewhere than at its end, where p.settled")
        elif one_waits:
            body = body[:end.start()] + f"{WAIT}();"
        waits = Waits(functions)
        conditions, returns = waits.of(body)
        if returns:
            problems.append(f"{path}: {name} returns before {WAIT}()")
        elif not waits._always(conditions):
            problems.append(f"{path}: {name} has a path without {WAIT}()")
    return problems


def check_launched(kernels, launched):
    names = {re.sub(r"<.*", "", line) for line in launched}
    problems = [f"{path}: {name} was not launched" for name, path, _, _ in kernels
                if name not in names and not str(path).startswith(SEVERAL_GPUS)]
    problems += [f"no {variant} was launched" for variant in VARIANTS
                 if any(name == variant.split("<")[0] for name, _, _, _ in kernels)
                 and not any(re.fullmatch(variant, line) for line in launched)]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--launched", type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    kernels = find_kernels(arguments.root)
    if not kernels:
        problems = [f"{arguments.root}: no kernels below src/cuda"]
    elif arguments.launched:
        problems = check_launched(kernels, arguments.launched.read_text().splitlines())
    else:
        problems = check_sources(kernels)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
