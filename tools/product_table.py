#!/usr/bin/env python3
"""Writes the table by which products of many rows go to our kernels or to cuBLASLt, from measurements of both.

    for backend in fathom cublaslt; do
      for model in deepseek-v3 deepseek-v3-tp8-rank deepseek-v2-lite; do
        fathom bench ops --device cuda --model-path models/configs/$model --gemm-backend $backend \\
          --tuned-dir none --operators linear,linear_pair --tokens 256 512 1024 2048 4096 8192 \\
          --result-filename $backend.jsonl
      done
    done
    tools/product_table.py fathom.jsonl cublaslt.jsonl > src/cuda/gemm/product_table.inc

V2-Lite with --dtype bfloat16; machines differ, so runs of two are better than of one. The library must be faster by a
twentieth: machines differ by nearly as much. A number of rows that was not measured goes with the nearest, in ratio,
that was. With --markdown it prints the times beside each other instead, those of more files too (bench_cutlass). The
measurements behind the table are docs/perf/gpu-operators/products-*.jsonl.
"""
import argparse
import json
import math
import pathlib
import statistics

WORTH = 0.95
DTYPES = {"f8_e4m3": "kF8E4M3", "bf16": "kBf16"}
SMALLEST = 129  # fewer rows run on other kernels


def load(path):
    """(dtype, out, in) -> {rows: microseconds}: the mean, where several runs or models have the same matrix."""
    samples = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        line = json.loads(line)
        if line.get("out") and line["dtype"] in DTYPES and line["tokens"] >= SMALLEST:
            of_matrix = samples.setdefault((line["dtype"], line["out"], line["in"]), {})
            of_matrix.setdefault(line["tokens"], []).append(line["us"])
    return {matrix: {rows: statistics.mean(us) for rows, us in of_matrix.items()}
            for matrix, of_matrix in samples.items()}


def intervals(ours, library):
    """([from, to), measured) of rows where the library is faster; to None: any number from there on."""
    rows = sorted(set(ours) & set(library))
    found = []
    for i, count in enumerate(rows):
        if library[count] > WORTH * ours[count]:
            continue
        begin = SMALLEST if i == 0 else math.ceil(math.sqrt(rows[i - 1] * count))
        end = None if i + 1 == len(rows) else math.ceil(math.sqrt(count * rows[i + 1]))
        found.append((begin, end, count))
    return found


def print_table(ours, library):
    print("// Written by tools/product_table.py; do not edit.")
    for matrix in sorted(set(ours) & set(library)):
        dtype, out, inner = matrix
        for begin, end, measured in intervals(ours[matrix], library[matrix]):
            to = "kAnyMore" if end is None else end
            print(f"{{DType::{DTYPES[dtype]}, {out}, {inner}, {begin}, {to}, {measured}}},")


def print_markdown(names, measured):
    rows = sorted({count for times in measured[0].values() for count in times})
    print(f"| us, {' / '.join(names)} | " + " | ".join(f"{count} rows" for count in rows) + " |")
    print("|---" * (len(rows) + 1) + "|")
    for matrix in sorted(measured[0]):
        times = [[of.get(matrix, {}).get(count) for of in measured] for count in rows]
        cells = [" / ".join(f"{us:.1f}" for us in cell if us) for cell in times]
        print(f"| {matrix[0]} ({matrix[1]}, {matrix[2]}) | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("ours")
    parser.add_argument("library")
    parser.add_argument("others", nargs="*")
    args = parser.parse_args()
    paths = [args.ours, args.library, *args.others]
    if args.markdown:
        print_markdown([pathlib.Path(path).stem.removeprefix("products-") for path in paths], [load(path) for path in paths])
    else:
        print_table(load(args.ours), load(args.library))


if __name__ == "__main__":
    main()
