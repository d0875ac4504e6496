#!/usr/bin/env python3
"""Times a plain mixture of experts in PyTorch on this GPU: what `fathom bench ops --operators moe_experts` is set beside.

    tools/moe_baseline.py --experts 256 --top 8 --hidden 7168 --inter 256 --tokens 1 8 64 512 4096 > baseline.jsonl

Plain means: sort the pairs of a token and an expert, gather their rows, one grouped product for gate and up, SiLU, one
for down, and the weighted sum by index_add. bf16 and fp8 (e4m3, scales of whole rows) are torch's grouped products in a
captured graph; fp16 and int8, of which torch has no grouped product, are a product an expert, launched one by one.
A line of JSON for each type and number of tokens: the median of --repeat runs, in microseconds, ids drawn anew for each.
"""
import argparse
import json
import statistics
import sys

import torch
import torch.nn.functional as functional


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--top", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--inter", type=int, default=256)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 8, 64, 512, 4096])
    parser.add_argument("--dtypes", nargs="+", default=["bf16", "fp16", "fp8", "int8"])
    parser.add_argument("--repeat", type=int, default=15)
    return parser.parse_args()


def to_fp8(x):
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-10) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale.squeeze(-1)


def to_int8(x):
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-10) / 127
    return (x / scale).round().to(torch.int8), scale


class Plain:
    """Weights [experts, out, in] of one type, and products of rows that are sorted by expert."""

    def __init__(self, dtype, args):
        self.dtype, self.args = dtype, args
        self.act = torch.float16 if dtype == "fp16" else torch.bfloat16
        self.is_grouped = dtype in ("bf16", "fp8")
        self.gate_up = self.weights(2 * args.inter, args.hidden)
        self.down = self.weights(args.hidden, args.inter)

    def weights(self, out, inner):
        made, scales = [], []
        for _ in range(self.args.experts):
            w = torch.randn(out, inner, device="cuda", dtype=self.act) * 0.02
            if self.dtype == "fp8":
                w, scale = to_fp8(w)
                scales.append(scale)
            elif self.dtype == "int8":
                w, scale = to_int8(w)
                scales.append(scale)
            made.append(w)
        return torch.stack(made), torch.stack(scales) if scales else None

    def grouped(self, rows, weight, ends):
        data, scale = weight
        if self.dtype == "bf16":
            return torch._grouped_mm(rows, data.transpose(1, 2), offs=ends)
        q, row_scale = to_fp8(rows)
        return torch._scaled_grouped_mm(q, data.transpose(1, 2), row_scale, scale, offs=ends,
                                        out_dtype=torch.bfloat16, use_fast_accum=True)

    def one_by_one(self, rows, weight, counts):
        data, scale = weight
        if self.dtype == "int8":
            rows, row_scale = to_int8(rows)
        outs, begin = [], 0
        for expert, count in enumerate(counts):
            if count == 0:
                continue
            part = rows[begin:begin + count]
            if self.dtype == "int8":
                padded = functional.pad(part, (0, 0, 0, max(0, 17 - count)))  # torch takes more than 16 rows
                sums = torch._int_mm(padded, data[expert].t())[:count]
                outs.append((sums * row_scale[begin:begin + count] * scale[expert].t()).to(self.act))
            else:
                outs.append(part @ data[expert].t())
            begin += count
        return torch.cat(outs)

    def product(self, rows, weight, ends, counts):
        return self.grouped(rows, weight, ends) if self.is_grouped else self.one_by_one(rows, weight, counts)

    def run(self, x, ids, probabilities):
        order = ids.flatten().argsort(stable=True)
        tokens = order // self.args.top
        experts = ids.flatten()[order]
        ends = counts = None
        if self.is_grouped:
            ends = torch.searchsorted(experts, torch.arange(self.args.experts, device="cuda"), right=True).int()
        else:
            counts = torch.bincount(experts, minlength=self.args.experts).tolist()
        gate, up = self.product(x[tokens], self.gate_up, ends, counts).chunk(2, dim=-1)
        out = self.product(functional.silu(gate) * up, self.down, ends, counts)
        weighted = out * probabilities.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(x).index_add_(0, tokens, weighted)


def timed(plain, tokens, repeat):
    args = plain.args
    x = torch.randn(tokens, args.hidden, device="cuda", dtype=plain.act)
    probabilities = torch.rand(tokens, args.top, device="cuda", dtype=plain.act)

    def draw():
        return torch.stack([torch.randperm(args.experts, device="cuda")[:args.top] for _ in range(tokens)])

    ids = draw()
    call = lambda: plain.run(x, ids, probabilities)
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    if plain.is_grouped:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        call = graph.replay
    draws = [draw() for _ in range(min(repeat, 5))]
    times = []
    for i in range(repeat):
        ids.copy_(draws[i % len(draws)])
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def main():
    args = parse()
    for dtype in args.dtypes:
        plain = Plain(dtype, args)
        for tokens in args.tokens:
            line = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "dtype": dtype,
                    "experts": args.experts, "top": args.top, "hidden": args.hidden, "inter": args.inter,
                    "tokens": tokens}
            try:
                line["us"] = round(timed(plain, tokens, args.repeat), 2)
            except RuntimeError as error:
                line["error"] = str(error).splitlines()[0]
            print(json.dumps(line), flush=True)
        del plain
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
