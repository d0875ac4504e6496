#!/usr/bin/env python3
"""Measures what a long prompt does to streams beside it, and what --max-step-ms costs the prompt.

    tools/bench_step_time.py                                  # 16k and 40k tokens on the demo model, about half an hour
    tools/bench_step_time.py --prompts 4096 --bounds 0 100    # a quick look

For each bound it starts `fathom serve`, sends each prompt alone and then beside streams that are being answered, and
prints a row: the prompt's seconds alone and beside, the longest and the 99th percentile of the gaps between two events of
a stream while the prompt was computed, and how many steps took longer than the bound, by the server's metrics.
Run it on a quiet machine: client and server share the cores.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY = range(100, 2000)   # ordinary tokens of the demo model
STREAM_PROMPT, WARM_UP_EVENTS = 32, 30


class Server:
    """`fathom serve` on a free port."""

    def __init__(self, program, flags):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--no-log-requests", *flags], cwd=ROOT,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.process.stdout:
            found = re.search(r"ready: http://(\S+)", line)
            if found:
                self.address = urllib.parse.urlsplit("//" + found.group(1))
                return
        self.log.seek(0)
        sys.exit("fathom serve ended:\n" + self.log.read())

    def connect(self):
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=3600)

    def get(self, path):
        connection = self.connect()
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def post(self, path, body):
        connection = self.connect()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"{path}: {answer.status} {answer.read().decode()}")
        return connection, answer

    def metric(self, name):
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics"), re.M)
        return float(found.group(1)) if found else float("nan")

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=120)


class Stream:
    """An answer that goes on until close(); when its events came. It is the same word again and again: a token that does not
    end a character has no event of its own, and would look like a longer gap."""

    def __init__(self, server, prompt, max_tokens):
        word = json.loads(server.post("/tokenize", {"prompt": "a", "add_special_tokens": False})[1].read())["tokens"][0]
        self.times = []
        self.closing = False
        self.connection, self.answer = server.post("/v1/completions", {
            "model": "default", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "stream": True,
            "temperature": 0, "logit_bias": {str(word): 100}})
        self.socket = self.connection.sock
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            for line in self.answer:
                if line.startswith(b"data: {"):
                    self.times.append(time.monotonic())
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            if not self.closing:
                raise

    def close(self):
        self.closing = True
        try:
            self.socket.shutdown(2)
        except OSError:
            pass
        self.thread.join()


def tokens(seed, count):
    return random.Random(seed).choices(VOCABULARY, k=count)


def prefill_seconds(server, prompt):
    begin = time.monotonic()
    server.post("/generate", {"input_ids": prompt, "sampling_params": {"max_new_tokens": 1, "temperature": 0}})[1].read()
    return time.monotonic() - begin


def gaps_between(times, begin, end):
    """Of the events of one stream, those that end in the given time, and the one that is open at its end."""
    inside = [(a, b) for a, b in zip(times, times[1:]) if begin < b and a < end]
    return [b - a for a, b in inside]


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else float("nan")


def measure(server, length, args, seed):
    alone = prefill_seconds(server, tokens(seed, length))
    streams = [Stream(server, tokens(seed + 1000 + i, STREAM_PROMPT), args.stream_tokens) for i in range(args.streams)]
    while min(len(stream.times) for stream in streams) < WARM_UP_EVENTS:
        time.sleep(0.01)
    before = gaps_between(streams[0].times, 0, time.monotonic())[WARM_UP_EVENTS // 2:]
    names = ("fathom:stream_steps_total", "fathom:steps_over_bound_total")
    counts = [server.metric(name) for name in names]
    begin = time.monotonic()
    beside = prefill_seconds(server, tokens(seed + 1, length))
    end = time.monotonic()
    counts = [server.metric(name) - count for name, count in zip(names, counts)]
    error = server.metric("fathom:step_prediction_error_ratio")
    time.sleep(0.5)
    alive = all(stream.thread.is_alive() for stream in streams)
    for stream in streams:
        stream.close()
    if not alive:
        sys.exit("a stream ended before the prompt: raise --stream-tokens")
    gaps = [gap for stream in streams for gap in gaps_between(stream.times, begin, end)]
    return {"prompt_tokens": length, "alone_s": alone, "beside_s": beside, "calm_gap_ms": 1e3 * percentile(before, 50),
            "worst_gap_ms": 1e3 * max(gaps), "p99_gap_ms": 1e3 * percentile(gaps, 99), "gaps": len(gaps),
            "stream_steps": counts[0], "steps_over": counts[1], "error": error}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/apps/fathom"))
    parser.add_argument("--model-path", default="models/demo")
    parser.add_argument("--prompts", type=int, nargs="+", default=[16384, 40960], help="tokens")
    parser.add_argument("--bounds", type=float, nargs="+", default=[0, 100], help="--max-step-ms, in turns")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--stream-tokens", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output-file", help="append JSON lines")
    parser.add_argument("serve_flags", nargs="*", help="after --: more flags for the server")
    args = parser.parse_args()
    print("| bound, ms | prompt | alone, s | beside streams, s | gap before, ms | p99 gap, ms | worst gap, ms | steps over the bound |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for round_number in range(args.rounds):
        for bound in args.bounds:
            server = Server(args.program, ["--model-path", args.model_path, "--disable-radix-cache", "--max-total-tokens",
                                           "196608", "--max-step-ms", str(bound), *args.serve_flags])
            try:
                prefill_seconds(server, tokens(7, 256))
                for length in args.prompts:
                    row = {"bound_ms": bound, **measure(server, length, args, 17 * round_number)}
                    print(f"| {bound:g} | {length} | {row['alone_s']:.2f} | {row['beside_s']:.2f} | {row['calm_gap_ms']:.1f} "
                          f"| {row['p99_gap_ms']:.0f} | {row['worst_gap_ms']:.0f} "
                          f"| {row['steps_over']:g} of {row['stream_steps']:g} |", flush=True)
                    if args.output_file:
                        with open(args.output_file, "a", encoding="utf-8") as file:
                            file.write(json.dumps({**row, "load": os.getloadavg()[0]}) + "\n")
            finally:
                server.close()


if __name__ == "__main__":
    main()
