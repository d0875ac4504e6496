#!/usr/bin/env python3
"""Measures serving on the demo model: batching against one client, the prefix cache against none.

    tools/bench_serving.py                          # about three minutes; rewrites docs/perf/serving.md's table
    tools/bench_serving.py --rounds 1 --out /tmp    # a quick look elsewhere

Starts `fathom serve` with its defaults, runs `fathom-bench serving` against it and prints the two ratios. Writes the
figures between the marks of serving.md, the runs as serving.jsonl and a picture of each workload's last run.
Run it on a quiet machine: client and server share the cores.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "models/demo"
SHORT = ["--random-input-len", "32", "--random-output-len", "128", "--random-range-ratio", "1"]
SHARED = ["--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "8", "--gsp-prompts-per-group", "16",
          "--gsp-system-prompt-len", "1024", "--gsp-question-len", "64", "--gsp-output-len", "16",
          "--max-concurrency", "4", "--flush-cache"]
# name, title, flags of the server, flags of the bench
WORKLOADS = [
    ("1-client", "1 client", [], ["--num-prompts", "32", "--max-concurrency", "1", *SHORT]),
    ("32-clients", "32 clients", [], ["--num-prompts", "256", "--max-concurrency", "32", *SHORT]),
    ("shared-prefix", "shared prefix, radix cache", [], SHARED),
    ("shared-prefix-no-cache", "shared prefix, no radix cache", ["--disable-radix-cache"], SHARED),
]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


class Serving:
    """`fathom serve` on a free port."""

    def __init__(self, program, flags):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([program, "serve", "--model-path", MODEL, "--port", "0", *flags], cwd=ROOT,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.process.stdout:
            found = re.search(r"ready: (http://\S+)", line)
            if found:
                self.url = found.group(1)
                return
        self.log.seek(0)
        sys.exit("fathom serve ended:\n" + self.log.read())

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)


def run_bench(program, url, workload, out):
    name, title, _, flags = workload
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.jsonl"
        subprocess.run([program.with_name("fathom-bench"), "serving", "--base-url", url, "--tag", title,
                        "--output-file", result, "--plot", out / f"serving-{name}.svg", *flags], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        line = json.loads(result.read_text())
    if line["failed"]:
        sys.exit(f"{title}: {line['failed']} requests failed")
    return line


def measure(program, rounds, out, serve_flags):
    """{name: [a JSON line for each round]}. Rounds alternate between the workloads of a server."""
    lines = {workload[0]: [] for workload in WORKLOADS}
    for server_flags in ([], ["--disable-radix-cache"]):
        server = Serving(program, [*serve_flags, *server_flags])
        try:
            for _ in range(rounds):
                for workload in WORKLOADS:
                    if workload[2] == server_flags:
                        lines[workload[0]].append(run_bench(program, server.url, workload, out))
        finally:
            server.close()
    return lines


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} cores of {cpu.group(1).strip() if cpu else 'an unknown CPU'}"


def commit():
    def git(*args):
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return git("rev-parse", "--short", "HEAD") + (", changed" if git("status", "--porcelain", "src", "apps") else "")


def section(lines, rounds, batching, caching):
    def middle(name, key):
        return statistics.median(line[key] for line in lines[name])

    one = f"{middle('1-client', 'output_throughput'):.0f}"
    many = f"{middle('32-clients', 'output_throughput'):.0f}"
    hit = f"{middle('shared-prefix', 'mean_ttft_ms'):.1f}"
    miss = f"{middle('shared-prefix-no-cache', 'mean_ttft_ms'):.1f}"
    text = [BEGIN, "",
            f"**In short:** on the demo model 32 clients get {many} tokens/s together where one gets {one}: "
            f"**{batching:.1f}x**. With a shared prefix of 1,024 tokens the first token comes after {hit} ms on average, "
            f"without the radix cache after {miss} ms: **{caching:.1f}x**.", "",
            f"Machine: {machine()}; commit {commit()}; the load average over the last minute was "
            f"{os.getloadavg()[0]:.1f} at the end, client and server included. Medians of {rounds} "
            f"{'rounds' if rounds > 1 else 'round'}; each run's figures are in [serving.jsonl](serving.jsonl).", "",
            "| workload | requests | output, tokens/s | TTFT mean, ms | TTFT p99, ms | ITL mean, ms | ITL p99, ms | E2E mean, ms | picture |",
            "|---|---|---|---|---|---|---|---|---|"]
    for name, title, _, _ in WORKLOADS:
        text.append(f"| {title} | {lines[name][0]['completed']} | {middle(name, 'output_throughput'):.0f} | "
                    + " | ".join(f"{middle(name, key):.2f}" for key in
                                 ("mean_ttft_ms", "p99_ttft_ms", "mean_itl_ms", "p99_itl_ms", "mean_e2e_latency_ms"))
                    + f" | [svg](serving-{name}.svg) |")
    text += ["", "| target | measured | met |", "|---|---|---|",
             f"| 32 clients at least 6x one client's rate | {batching:.2f}x | {'yes' if batching >= 6 else 'no'} |",
             f"| mean TTFT at least 3x better with the radix cache | {caching:.2f}x | {'yes' if caching >= 3 else 'no'} |",
             "", END]
    return "\n".join(text)


def write_results(out, lines, text):
    with open(out / "serving.jsonl", "w", encoding="utf-8") as file:
        for runs in lines.values():
            for line in runs:
                kept = {key: value for key, value in line.items() if key != "server_info"}
                file.write(json.dumps(kept) + "\n")
    page = out / "serving.md"
    old = page.read_text(encoding="utf-8") if page.exists() else f"# Serving over HTTP\n\n{BEGIN}\n{END}\n"
    page.write_text(old[:old.index(BEGIN)] + text + old[old.index(END) + len(END):], encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/apps/fathom", type=pathlib.Path,
                        help="fathom; fathom-bench is beside it")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--out", default=ROOT / "docs/perf", type=pathlib.Path)
    parser.add_argument("--serve-flag", action="append", default=[], help="one more flag of fathom serve; repeatable")
    args = parser.parse_args()
    out = args.out.resolve()
    lines = measure(args.program.resolve(), args.rounds, out, args.serve_flag)

    def ratio(upper, lower, key):
        return statistics.median(line[key] for line in lines[upper]) / statistics.median(line[key] for line in lines[lower])

    batching = ratio("32-clients", "1-client", "output_throughput")
    caching = ratio("shared-prefix-no-cache", "shared-prefix", "mean_ttft_ms")
    write_results(out, lines, section(lines, args.rounds, batching, caching))
    print(f"32 clients against one: {batching:.2f}x output tokens/s (target 6)")
    print(f"radix cache against none: {caching:.2f}x better mean TTFT (target 3)")


if __name__ == "__main__":
    main()
