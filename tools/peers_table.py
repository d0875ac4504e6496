#!/usr/bin/env python3
"""Sets the lines of `fathom bench ops` beside what other kernels take on the same kind of GPU, as Markdown tables: ours
and the fastest of the others, in microseconds.

    tools/peers_table.py docs/perf/gpu-operators/{deepseek-v3,deepseek-v3-tp8-rank}.jsonl

The peers' times are docs/perf/gpu-operators/peers-h200.jsonl: a line for each shape, microseconds for each kernel.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "docs" / "perf" / "gpu-operators" / "peers-h200.jsonl"


def matrices(config):
    """(operator, case) of a bench line -> (rows, inner) of its matrix."""
    hidden, heads, q_rank = config["hidden_size"], config["num_attention_heads"], config["q_lora_rank"]
    shared = config["n_shared_experts"] * config["moe_intermediate_size"]
    latent = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    return {("linear_pair", "q_a_proj, kv_a_proj_with_mqa"): (q_rank + latent, hidden),
            ("linear", "q_b_proj"): (heads * (config["qk_nope_head_dim"] + config["qk_rope_head_dim"]), q_rank),
            ("linear", "o_proj"): (hidden, heads * config["v_head_dim"]),
            ("linear", "dense gate_up"): (2 * config["intermediate_size"], hidden),
            ("linear", "dense down"): (hidden, config["intermediate_size"]),
            ("linear", "shared gate_up"): (2 * shared, hidden),
            ("linear", "shared down"): (hidden, shared)}


def shape_of(line, config):
    """What a peer's line says of its shape, None where there is no peer."""
    heads, tokens = config["num_attention_heads"], line["tokens"]
    if line["operator"] == "mla_absorbed":
        return ("decode attention", heads, tokens, int(line["case"].split()[-1]))
    if line["operator"] == "mla_expanded":
        return ("prompt attention", heads, tokens)
    if line["operator"] == "moe_experts":
        return ("experts", config["moe_intermediate_size"], tokens)
    matrix = matrices(config).get((line["operator"], line["case"]))
    return ("product", *matrix, tokens) if matrix else None


def peer_shape(peer):
    names = {"product": ("rows", "inner", "tokens"), "decode attention": ("heads", "sequences", "context"),
             "prompt attention": ("heads", "tokens"), "experts": ("inter", "tokens")}
    return (peer["kind"], *(peer[name] for name in names[peer["kind"]]))


# What a table's rows and columns are named by.
TABLES = {"product": ("FP8 ({rows}, {inner})", "{tokens} rows"),
          "decode attention": ("decode, {heads} heads, {sequences} sequences", "{context}"),
          "prompt attention": ("prompt, {heads} heads", "{tokens} tokens"),
          "experts": ("experts FP8, width {inter}", "{tokens} tokens")}
LETTERS = {"DeepGEMM": "D", "SGLang Triton": "T", "cuBLASLt block-scaled": "C", "FlashMLA": "M", "FlashInfer FA3": "I"}


def load(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def cell(peer, line):
    """Ours and the fastest peer's, in bold where ours is not slower: "**9.0**/12.8D"."""
    name, time = min(peer["us"].items(), key=lambda item: item[1])
    ours = "-" if line is None else f"{line['us']:.1f}" if line["us"] > time else f"**{line['us']:.1f}**"
    return f"{ours}/{time:.1f}{LETTERS[name]}"


def print_table(cells):
    """cells: {row: {column: cell}}"""
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    print("| | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, row in cells.items():
        print(f"| {name} | " + " | ".join(row.get(column, "") for column in columns) + " |")


def main(paths):
    ours = {}
    for path in paths:
        for line in load(path):
            config = json.loads((ROOT / line["model_path"] / "config.json").read_text(encoding="utf-8"))
            ours[shape_of(line, config)] = line
    tables = {kind: {} for kind in TABLES}
    for peer in load(PEERS):
        row, column = (form.format(**peer) for form in TABLES[peer["kind"]])
        tables[peer["kind"]].setdefault(row, {})[column] = cell(peer, ours.get(peer_shape(peer)))
    for cells in tables.values():
        print_table(cells)
        print()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
