#!/usr/bin/env python3
"""Random texts of generated schemas, each judged by PyPI's jsonschema: a text that its schema refuses is a lie.

    tools/constrained/walk.py --tokenizer DIR [--engines ours,llguidance,xgrammar] [--schemas N] [--first N]
        [--walks N] [--report FILE]

At every step a token out of the mask is taken (bench/grammar/walk_schemas.cc says which), until the text may end. The
schemas come from generated_schemas.py, the same ones for each engine and run. DIR holds a tokenizer.json, as
models/demo does. Each engine runs in a process of its own, as in compare.py, and the others come from PyPI. Python
needs jsonschema. Exit status 1: our engine lied, or a mask allowed nothing.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import sys

import compare
import exact_validator
import generated_schemas

HERE = pathlib.Path(__file__).resolve()
STYLES = [{}, {}, {}, {"space": ""}, {"space": "\\s{0,3}"}, {"unlisted": 1}]


def cases(first, count, walks, with_styles):
    """Lines for the engines. Texts of compare.py are none here."""
    for number in range(first, first + count):
        yield {"id": str(number), "schema": generated_schemas.make(number),
               "seeds": [number * 1000 + i for i in range(walks)], "max_tokens": 200, "prefer_ends": 30,
               **(STYLES[number % len(STYLES)] if with_styles else {})}


class Walker:
    """As bench/grammar/walk_schemas.cc, for the engines with interfaces in Python."""

    def __init__(self, name, folder):
        import numpy
        from tokenizers import Tokenizer
        self.numpy = numpy
        self.engine = {"llguidance": compare.LLGuidance, "xgrammar": compare.XGrammar}[name](folder)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        texts = [self.tokenizer.decode([token]) for token in range(self.tokenizer.get_vocab_size())]
        self.closing = [token for token, text in enumerate(texts) if text and not text.strip('"}]')]
        self.single = [token for token, text in enumerate(texts) if len(text) == 1 and text.isascii()]

    def allowed(self, mask):
        bits = self.numpy.unpackbits(self.numpy.asarray(mask[0]).view(self.numpy.uint8), bitorder="little")
        return bits.astype(bool)

    def choose(self, tokens, bits):
        some = [token for token in tokens if bits[token]]
        return self.random.choice(some) if some else None

    def walk(self, matcher, case, likely):
        tokens = []
        for step in range(case["max_tokens"]):
            bits = self.allowed(self.engine.fill(matcher))
            must_end = step >= case["prefer_ends"]
            if bits[self.engine.eos] and (must_end or self.random.random() < 0.25):
                return self.tokenizer.decode(tokens)
            token = self.choose(self.closing, bits) if must_end else None
            if token is None and self.random.random() < 0.5:
                token = self.choose(likely, bits)
            if token is None:
                every = self.numpy.flatnonzero(bits[:len(bits)])
                if len(every) == 0:
                    return None
                token = int(self.random.choice(every))
            if token == self.engine.eos:
                return self.tokenizer.decode(tokens)
            if not self.engine.take(matcher, token):
                return None
            tokens.append(token)
        return None

    def walk_all(self, case):
        try:
            compiled = self.engine.compile(case["schema"])
        except Exception as problem:  # an engine's own kinds of refusal
            return {"id": case["id"], "refusal": f"{type(problem).__name__}: {problem}"}
        likely = self.tokenizer.encode(json.dumps(case["schema"], ensure_ascii=False), add_special_tokens=False).ids
        texts = []
        for seed in case["seeds"]:
            self.random = random.Random(seed)
            texts.append(self.walk(self.engine.start(compiled), case, likely + self.single))
        finished = [text for text in texts if text is not None]
        return {"id": case["id"], "texts": finished, "num_unfinished": len(texts) - len(finished), "num_stuck": 0}


def work(name, folder):
    walker = Walker(name, folder)
    print(compare.READY, flush=True)
    for line in sys.stdin:
        print(json.dumps(walker.walk_all(json.loads(line))), flush=True)


def judge(name, lines, results):
    """Counts of the engine, and its lies: (id, text, what the validator says)."""
    counts, lies, refusals = collections.Counter(), [], collections.Counter()
    for case in lines:
        result = results[case["id"]]
        if "refusal" in result:
            counts["refused"] += 1
            refusals[compare.reason(result["refusal"])] += 1
            continue
        counts["compiled"] += 1
        counts["finished"] += len(result["texts"])
        counts["unfinished"] += result["num_unfinished"]
        counts["stuck"] += result["num_stuck"]
        for text in result["texts"]:
            problem = exact_validator.violation(case["schema"], text)
            if problem is None and name == "ours":
                problem = exact_validator.violation(case["schema"], text, first=True)
            if problem is not None:
                lies.append((case["id"], text, problem))
    counts["lies"] = len(lies)
    counts["lying schemas"] = len({lie[0] for lie in lies})
    return counts, lies, refusals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--engines", default=",".join(compare.ENGINES))
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first schema")
    parser.add_argument("--walks", type=int, default=10, help="for each schema")
    parser.add_argument("--schema-seconds", type=int, default=20, help="of CPU time, for one schema")
    parser.add_argument("--memory-gib", type=int, default=6, help="of one engine's process")
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[2] / "build/release/bench/walk_schemas")
    parser.add_argument("--venv", type=pathlib.Path, default=HERE.parents[2] / "build/constrained-venv")
    parser.add_argument("--report", type=pathlib.Path, help="JSON with every lie")
    parser.add_argument("--worker", choices=compare.ENGINES[1:], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments.worker, arguments.tokenizer)
    arguments.memory_bytes = arguments.memory_gib << 30
    rows, found = [], {}
    for name in arguments.engines.split(","):
        # White space and unlisted members by setting are ours alone.
        lines = list(cases(arguments.first, arguments.schemas, arguments.walks, with_styles=name == "ours"))
        command = [arguments.binary.resolve(), arguments.tokenizer]
        if name != "ours":
            command = [compare.environment(arguments.venv), __file__, "--worker", name, "--tokenizer",
                       arguments.tokenizer]
        results = compare.run(command, lines, arguments, says_ready=name != "ours",
                              keys=("id", "schema", "seeds", "max_tokens", "prefer_ends", "space", "unlisted"))
        counts, lies, refusals = judge(name, lines, results)
        found[name] = {"counts": counts, "lies": lies, "refusals": refusals}
        for number, text, problem in lies[:8] if name == "ours" else []:
            print(f"a lie in schema {number}: {text!r}: {problem}\n  {json.dumps(generated_schemas.make(int(number)))}")
        keys = ("compiled", "refused", "finished", "unfinished", "stuck", "lies", "lying schemas")
        rows.append([name, *(counts[key] for key in keys)])
        if arguments.report:
            arguments.report.write_text(json.dumps(found, indent=1))
    print(f"\n| engine | {' | '.join(keys)} |\n|{'---|' * (len(keys) + 1)}")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    ours = found.get("ours", {"counts": collections.Counter()})["counts"]
    return 1 if ours["lies"] or ours["stuck"] else 0


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
