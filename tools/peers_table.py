#!/usr/bin/env python3
"""Sets the lines of `fathom bench ops` beside what other kernels take on the same kind of GPU, as a Markdown table.

    tools/peers_table.py docs/perf/gpu-operators/{deepseek-v3,deepseek-v3-tp8-rank}.jsonl

The peers' times are docs/perf/gpu-operators/peers-h200.jsonl: a line for each shape, microseconds for each kernel.
The floor is the longer of the bytes at the bandwidth that the bench measured and the arithmetic at the data sheet's rate.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Dense, of an H200's data sheet.
FLOPS_PER_US = {"f8_e4m3": 1979e6, "bf16": 989e6}
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


def label(peer):
    return {"product": "FP8 ({rows}, {inner}), {tokens} rows",
            "decode attention": "decode attention, {heads} heads, {sequences} x {context}",
            "prompt attention": "prompt attention, {heads} heads, {tokens} tokens",
            "experts": "experts FP8, width {inter}, {tokens} tokens"}[peer["kind"]].format(**peer)


def floor_us(line):
    return max(line["floor_us"], line.get("flops", 0) / FLOPS_PER_US[line["dtype"]])


def load(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def main(paths):
    ours = {}
    for path in paths:
        for line in load(path):
            config = json.loads((ROOT / line["model_path"] / "config.json").read_text(encoding="utf-8"))
            ours[shape_of(line, config)] = line
    print("| | ours, us | of the floor | fastest peer, us | | ours to peer's |\n|---|---|---|---|---|---|")
    for peer in load(PEERS):
        name, time = min(peer["us"].items(), key=lambda item: item[1])
        line = ours.get(peer_shape(peer))
        if line is None:
            print(f"| {label(peer)} | not measured | | {time:.1f} | {name} | |")
            continue
        ratio = line["us"] / time
        bold = "**" if ratio <= 1 else ""
        print(f"| {label(peer)} | {bold}{line['us']:.1f}{bold} | {100 * floor_us(line) / line['us']:.0f}% | {time:.1f} | {name} "
              f"| {ratio:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
