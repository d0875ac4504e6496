#!/usr/bin/env python3
"""Sets mixtures of experts beside a plain grouped one: a Markdown table, and a picture of both.

    tools/moe_table.py --baseline baseline.jsonl --svg docs/images/moe.svg ours.jsonl ...

ours: lines of `fathom bench ops --operators moe_experts --result-filename`, a file for each type. baseline: lines of
tools/moe_baseline.py. The picture needs matplotlib.
"""
import argparse
import json
import pathlib

# A line of bench ops says the type of the weights; the baseline's names are torch's.
PAIRS = {"bf16": "bf16", "f8_e4m3": "fp8", "i8": "int8", "i4x2": None, "u4x2": None}
NAMES = {"bf16": "bf16", "f8_e4m3": "FP8", "i8": "INT8", "i4x2": "INT4 (W4AFP8)", "u4x2": "AWQ",
         "fp16": "fp16", "fp8": "FP8", "int8": "INT8"}


def load(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()
            if line.startswith("{")]


def times(lines, key):
    """{type: {tokens: microseconds}}"""
    table = {}
    for line in lines:
        if line.get("us") is not None:
            table.setdefault(key(line), {})[line["tokens"]] = line["us"]
    return table


def shown(us):
    return "-" if us is None else f"{us:,.1f}" if us < 100 else f"{us:,.0f}"


def markdown(ours, plain, tokens):
    rows = [["us"] + [f"{n} tokens" if n > 1 else "1 token" for n in tokens]]
    for dtype, line in ours.items():
        other = plain.get(PAIRS[dtype], {})
        cells = [f"{shown(line.get(n))}/{shown(other[n])}" if n in other else shown(line.get(n)) for n in tokens]
        rows.append([f"{NAMES[dtype]}, ours/plain" if other else f"{NAMES[dtype]}, ours", *cells])
    for dtype in plain:
        if dtype not in (PAIRS[name] for name in ours):
            rows.append([f"{NAMES[dtype]}, plain", *(shown(plain[dtype].get(n)) for n in tokens)])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def draw(ours, plain, tokens, title, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fathom", "font.family": "sans-serif"})
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(9, 5))
    colours = {name: f"C{i}" for i, name in enumerate(["bf16", "FP8", "INT8", "INT4 (W4AFP8)", "AWQ", "fp16"])}
    for table, label, style in ((ours, "ours", "o-"), (plain, "plain", "x--")):
        for dtype, line in table.items():
            at = [n for n in tokens if n in line]
            axes.plot(at, [line[n] for n in at], style, color=colours[NAMES[dtype]], label=f"{NAMES[dtype]}, {label}")
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="microseconds", title=title)
    axes.set_xticks(tokens, [str(n) for n in tokens])
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", nargs="+")
    parser.add_argument("--baseline", required=True)
    parser.add_argument("--svg")
    parser.add_argument("--title", default="Experts of the V3 rank: 256 of width 256, top 8, 7168 channels; one H200")
    args = parser.parse_args()
    ours = times([line for path in args.ours for line in load(path) if line["operator"] == "moe_experts"],
                 lambda line: line["dtype"])
    plain = times(load(args.baseline), lambda line: line["dtype"])
    tokens = sorted({n for table in (ours, plain) for line in table.values() for n in line})
    print(markdown(ours, plain, tokens))
    if args.svg:
        draw(ours, plain, tokens, args.title, args.svg)


if __name__ == "__main__":
    main()
