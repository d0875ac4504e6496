#!/usr/bin/env python3
"""Holds the lines of `fathom bench one-batch --result-filename FILE` to the bounds of a model on an H200.

    tools/check_bench.py FILE v2-lite|v3-rank|v2-lite-tp2

Every row of the table must be in FILE and within its bounds: steps no longer than SGLang's on the same kind of GPU but
for the 4% by which machines differ, prefills no slower than SGLang's. Where SGLang's cannot be compared, no slower than
ours were by 10% (docs/perf/gpu.md). Lines of another kind of GPU are not held; where there are no others, the last line
says so.
"""
import argparse
import json
import pathlib
import sys

# Of the length of a step, from machine to machine.
SPREAD = 1.04
# Sequences -> (longest median step in ms; fewest prompt tokens per second). Prompts of 1024 tokens.
BOUNDS = {
    "v2-lite": {1: (3.84 * SPREAD, 21_300), 8: (7.4 * SPREAD, 70_000), 32: (10.4 * SPREAD, 70_000),
                128: (15.2 * SPREAD, 70_000)},
    # Two GPUs (docs/perf/ranks.md).
    "v2-lite-tp2": {1: (3.90 * SPREAD, 70_000), 8: (5.54 * SPREAD, 140_000), 32: (7.59 * SPREAD, 140_000),
                    128: (10.5 * SPREAD, 140_000)},
    "v3-rank": {1: (7.9 * SPREAD, 7_400), 8: (12.4, 44_000), 32: (25.6, 43_000)},
}
INPUT_LEN = 1024
DEVICE = "NVIDIA H200"


def problems_of(lines, bounds):
    last = {line["batch_size"]: line for line in lines if line["input_len"] == INPUT_LEN}
    for size, (step_ms, prefill) in bounds.items():
        line = last.get(size)
        if line is None:
            yield f"{size} sequences: not measured"
            continue
        measured_ms = 1e3 * line.get("median_decode_latency", float("inf"))
        if not measured_ms <= step_ms:
            yield f"{size} sequences: a step takes {measured_ms:.2f} ms, bound {step_ms:.2f}"
        if not line["prefill_throughput"] >= prefill:
            yield f"{size} sequences: prefill at {line['prefill_throughput']:.0f} tokens/s, bound {prefill}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("model", choices=BOUNDS)
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.file.read_text().splitlines()]
    held = [line for line in lines if line.get("device", "").startswith(DEVICE)]
    if lines and not held:
        others = sorted({line.get("device", "no device") for line in lines})
        print(f"SKIPPED: the bounds of {arguments.model} are an {DEVICE}'s, not of {', '.join(others)}")
        return 0
    problems = list(problems_of(held, BOUNDS[arguments.model]))
    for problem in problems:
        print(f"{arguments.model}, {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
