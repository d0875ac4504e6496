#!/usr/bin/env python3
"""Coverage and speed of constrained output by JSON schema, beside xgrammar and llguidance.

    tools/constrained/compare.py DATA --tokenizer DIR [--engines ours,llguidance,xgrammar] [--limit N]
        [--schema-seconds N] [--report FILE]

DATA is a folder of files {"schema": ..., "tests": [{"valid": true, "data": ...}]}, the form of MaskBench
(github.com/guidance-ai/jsonschemabench, maskbench/data), or of the JSON-Schema-Test-Suite (lists of such groups).
DIR holds a tokenizer.json (tools/tokenizer/fetch_deepseek.sh). An instance is written as MaskBench writes it,
`json.dumps(..., ensure_ascii=False)`, and accepted where every token of it and the end are in the masks.

A schema passes where it compiles, accepts every valid and rejects every invalid instance. Schemas that accept an
invalid instance are counted apart. The others come from PyPI into a virtual environment of their own under --venv.

Each engine runs in a process of its own that gets one schema at a time. One schema with all its instances may use
--schema-seconds of CPU time and --memory-gib of memory: the process that uses more is ended, the schema counts as
refused ("it takes longer than N s") and the rest go on in a new process. So a run takes at most the number of
schemas and engines times that limit. --limit 500 takes 500 schemas, evenly spread over the sorted file names, the
same ones for every engine; tables at the end say what was left out.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time

PACKAGES = ["xgrammar==0.2.8", "llguidance==1.9.1", "tokenizers", "numpy", "pydantic==2.14.3", "email-validator"]
ENGINES = ["ours", "llguidance", "xgrammar"]
MAX_DEPTH = 500
WALL_SECONDS_PER_CPU_SECOND = 20  # a process that waits for ever uses no CPU time
START_SECONDS = 300
READY = "ready"


def schemas(folder, limit):
    """Lines for the engines, with the expected outcomes."""
    cases = []
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        content = json.loads(path.read_text())
        groups = content if isinstance(content, list) else [content]
        for number, group in enumerate(groups):
            tests = group.get("tests", [])
            cases.append({
                "id": path.stem + (f"#{number}" if len(groups) > 1 else ""),
                "schema": group["schema"],
                "texts": [json.dumps(test["data"], ensure_ascii=False) for test in tests],
                "valid": [test["valid"] for test in tests],
            })
    if limit and limit < len(cases):
        step = len(cases) / limit
        cases = [cases[int(i * step)] for i in range(limit)]
    return cases


class LLGuidance:
    def __init__(self, tokenizer):
        import llguidance
        from llguidance import numpy as masks
        self.module, self.masks = llguidance, masks
        self.tokenizer = llguidance.LLTokenizer(str(tokenizer / "tokenizer.json"))
        self.mask = masks.allocate_token_bitmask(1, self.tokenizer.vocab_size)
        self.eos = self.tokenizer.eos_token

    def compile(self, schema):
        grammar = json.dumps({"grammars": [{"json_schema": schema}]})
        matcher = self.module.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, compiled):
        return compiled.deep_copy()

    def fill(self, matcher):
        self.masks.fill_next_token_bitmask(matcher, self.mask, 0)
        return self.mask

    def take(self, matcher, token):
        return matcher.consume_token(token)

    def accepts(self, compiled, tokens, times):
        matcher = self.start(compiled)
        for token in tokens:
            start = time.thread_time()
            self.masks.fill_next_token_bitmask(matcher, self.mask, 0)
            times.append((time.thread_time() - start) * 1e6)
            if not self.mask[0, token // 32] >> (token % 32) & 1 or not matcher.consume_token(token):
                return False
        return matcher.is_accepting()


class XGrammar:
    def __init__(self, tokenizer):
        import xgrammar
        from tokenizers import Tokenizer
        self.module = xgrammar
        vocabulary = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).get_vocab(with_added_tokens=True)
        size = max(vocabulary.values()) + 1
        words = [""] * size
        for word, number in vocabulary.items():
            words[number] = word
        config = json.loads((tokenizer / "tokenizer_config.json").read_text())
        eos = config["eos_token"]
        self.eos = vocabulary[eos["content"] if isinstance(eos, dict) else eos]
        info = xgrammar.TokenizerInfo(words, xgrammar.VocabType.BYTE_LEVEL, vocab_size=size,
                                      stop_token_ids=[self.eos])
        self.mask = xgrammar.allocate_token_bitmask(1, size)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, schema):
        return self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)

    def start(self, compiled):
        return self.module.GrammarMatcher(compiled)

    def fill(self, matcher):
        matcher.fill_next_token_bitmask(self.mask)
        return self.mask

    def take(self, matcher, token):
        return matcher.accept_token(token)

    def accepts(self, compiled, tokens, times):
        matcher = self.start(compiled)
        for token in tokens + [self.eos]:
            start = time.thread_time()
            matcher.fill_next_token_bitmask(self.mask)
            times.append((time.thread_time() - start) * 1e6)
            if not matcher.accept_token(token):
                return False
        return True


def work(engine_name, folder):
    """A line of results for each line of standard input, as bench/grammar/check_schemas.cc has them."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    engine = {"llguidance": LLGuidance, "xgrammar": XGrammar}[engine_name](folder)
    print(READY, flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        result = {"id": case["id"]}
        start = time.thread_time()
        try:
            compiled = engine.compile(case["schema"])
            result["compile_ms"] = (time.thread_time() - start) * 1e3
            result["accepted"], result["masks_us"] = [], []
            for text in case["texts"]:
                tokens = tokenizer.encode(text, add_special_tokens=False).ids
                result["accepted"].append(bool(engine.accepts(compiled, tokens, result["masks_us"])))
        except Exception as problem:  # an engine's own kinds of refusal
            result = {"id": case["id"], "refusal": f"{type(problem).__name__}: {problem}"}
            result["compile_ms"] = (time.thread_time() - start) * 1e3
        print(json.dumps(result), flush=True)


def environment(folder):
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = folder / "installed"
    if not done.exists():
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        done.write_text("\n".join(PACKAGES))
    return python


class Engine:
    """A process that answers one line for each line, with a limit on what one answer may cost."""

    def __init__(self, command, limits, says_ready):
        self.limits = limits
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
        self.output = b""
        if says_ready and self.read_line(START_SECONDS) != READY:
            sys.exit(f"{command[0]} does not start: {self.last_words()}")

    def read_line(self, seconds):
        """None: there is none, and the process has ended."""
        end = time.monotonic() + seconds
        while b"\n" not in self.output:
            left = end - time.monotonic()
            readable = left > 0 and select.select([self.process.stdout], [], [], left)[0]
            more = os.read(self.process.stdout.fileno(), 1 << 20) if readable else b""
            if not more:
                self.stop()
                return None
            self.output += more
        line, self.output = self.output.split(b"\n", 1)
        return line.decode()

    def answer(self, case, keys):
        seconds = self.limits.schema_seconds
        ticks = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        used = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        # Native code notices no alarm; the kernel ends the process itself.
        resource.prlimit(self.process.pid, resource.RLIMIT_CPU, (int(used) + 1 + seconds, resource.RLIM_INFINITY))
        try:
            line = json.dumps({key: case[key] for key in keys if key in case}) + "\n"
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.read_line(WALL_SECONDS_PER_CPU_SECOND * seconds)
        if line is not None:
            return json.loads(line)
        is_late = self.process.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        why = f"it takes longer than {seconds} s" if is_late else f"crash: {self.last_words()}"
        return {"id": case["id"], "refusal": why, "is_late": is_late, "compile_ms": 0}

    def last_words(self):
        self.errors.seek(0)
        return (self.errors.read().strip().splitlines() or [f"status {self.process.returncode}"])[-1]

    def stop(self):
        try:
            self.process.stdin.close()
            self.process.wait(1)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
        self.process.wait()


def run(command, cases, limits, says_ready, keys=("id", "schema", "texts")):
    """Results by id. A process that dies takes one schema with it: the rest go on in another."""
    results = {}
    engine = None
    for number, case in enumerate(cases):
        if engine is None or engine.process.returncode is not None:
            engine = Engine(command, limits, says_ready)
        results[case["id"]] = engine.answer(case, keys)
        if sys.stderr.isatty() or number % 100 == 99:
            print(f"{number + 1} of {len(cases)}", file=sys.stderr, end="\n" if number % 100 == 99 else "\r")
    if engine is not None:
        engine.stop()
    return results


def reason(refusal):
    """The refusal without what belongs to one schema: places, names, numbers."""
    text = re.sub(r"json schema at \S+?: ", "", refusal)
    text = re.sub(r'"\$ref" to \S+,', '"$ref" to PLACE,', text)
    text = re.sub(r"regex at byte \d+", "regex", text)
    return re.sub(r"\d+", "N", text)[:110]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def judge(cases, results):
    counts, refusals = collections.Counter(), collections.Counter()
    lists = collections.defaultdict(list)
    compile_ms, masks_us = [], []
    for case in cases:
        result = results[case["id"]]
        if "refusal" in result:
            refusals[reason(result["refusal"])] += 1
            lists["refused"].append(case["id"])
            continue
        counts["compiles"] += 1
        compile_ms.append(result["compile_ms"])
        masks_us += result["masks_us"]
        pairs = list(zip(case["valid"], result["accepted"]))
        accepts_invalid = any(got and not valid for valid, got in pairs)
        rejects_valid = any(valid and not got for valid, got in pairs)
        if accepts_invalid:
            lists["accepts invalid"].append(case["id"])
        if rejects_valid:
            lists["rejects valid"].append(case["id"])
        counts["passes"] += not accepts_invalid and not rejects_valid
    return counts, refusals, lists, compile_ms, masks_us


def report(name, cases, results, num_reasons):
    counts, refusals, lists, compile_ms, masks_us = judge(cases, results)
    share = lambda n: f"{100 * n / len(cases):.1f} %"
    quantiles = lambda values, digits: [f"{percentile(values, q):.{digits}f}" for q in (0.5, 0.99, 1)]
    late = sum(result.get("is_late", False) for result in results.values())
    coverage = [name, share(counts["compiles"]), share(counts["passes"]), len(lists["accepts invalid"]),
                len(lists["rejects valid"]), late]
    speed = [name, *quantiles(compile_ms, 2), *quantiles(masks_us, 1), len(masks_us)]
    print(f"\n{name}: {len(cases)} schemas, {len(lists['refused'])} refused, of these {late} take too long")
    for text, number in refusals.most_common(num_reasons):
        print(f"  {number:5}  {text}")
    for kind in ("accepts invalid", "rejects valid"):
        print(f"  {kind}: {' '.join(lists[kind][:12])}")
    return {"counts": counts, "refusals": refusals, "lists": lists, "coverage": coverage, "speed": speed}


def print_tables(found, num_schemas, limits):
    print(f"\n{num_schemas} schemas; the times leave out what was refused or took longer than "
          f"{limits.schema_seconds} s of CPU time\n")
    for key, heads in (("coverage", ["engine", "compile", "pass", "accept an invalid instance",
                                     "reject a valid one", "take too long"]),
                       ("speed", ["engine", "compile p50, ms", "p99", "largest", "mask p50, us", "p99", "largest",
                                  "masks"])):
        for row in (heads, ["---"] * len(heads), *(engine[key] for engine in found.values())):
            print("| " + " | ".join(map(str, row)) + " |")
        print()


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, nargs="?")
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--limit", type=int, default=0, help="so many schemas, evenly spread")
    parser.add_argument("--schema-seconds", type=int, default=10, help="of CPU time, for one schema")
    parser.add_argument("--memory-gib", type=int, default=6, help="of one engine's process")
    parser.add_argument("--binary", type=pathlib.Path, default=here / "build/release/bench/check_schemas")
    parser.add_argument("--venv", type=pathlib.Path, default=here / "build/constrained-venv")
    parser.add_argument("--no-masks", action="store_true", help="of ours; whether texts are accepted is the same")
    parser.add_argument("--reasons", type=int, default=40)
    parser.add_argument("--report", type=pathlib.Path, help="JSON with the ids of each outcome")
    parser.add_argument("--worker", choices=ENGINES[1:], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments.worker, arguments.tokenizer)
    sys.setrecursionlimit(10 * MAX_DEPTH)
    cases = schemas(arguments.data, arguments.limit)
    found = {}
    arguments.memory_bytes = arguments.memory_gib << 30
    for name in arguments.engines.split(","):
        if name == "ours":
            command = [arguments.binary.resolve(), arguments.tokenizer] + ["no-masks"] * arguments.no_masks
        else:
            command = [environment(arguments.venv), __file__, "--worker", name, "--tokenizer", arguments.tokenizer]
        results = run(command, cases, arguments, says_ready=name != "ours")
        found[name] = report(name, cases, results, arguments.reasons)
        if arguments.report:
            arguments.report.write_text(json.dumps(found, indent=1))
    print_tables(found, len(cases), arguments)


if __name__ == "__main__":
    os.nice(10)
    main()
