"""What the dearest requests of one client do to the others: grammars that take long and much memory, answers that
repeat much of the prompt, long names. Beside them six streams, a probe and another key's one-token requests are timed.

    FATHOM_PROGRAM=build/release/apps/fathom python3 tests/apps/dear_requests.py

prints a table, of the rows whose names have one of the words behind it if there are any. The simulation backend stands for the model.
"""
import collections
import contextlib
import http.client
import json
import pathlib
import re
import socket
import ssl
import sys
import tempfile
import threading
import time

from serve_inputs import make_certificate
from serving_process import PATIENCE_SECONDS, ServingProcess

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
STREAMS = 6
CHAT = "/v1/chat/completions"
SETTINGS = ("--engine", "sim", "--sim-step-us", "2000", "--max-total-tokens", "400000",
            "--api-key", f"alice:{ALICE}", "--api-key", f"bob:{BOB}")


def dear_schema(number):
    """Three kilobytes that take a good part of a second to be refused."""
    names = [f"p{i}" for i in range(60)]
    return json.dumps({"type": "object", "title": str(number), "properties": {name: {"type": "null"} for name in names},
                       "dependentRequired": {f"p{i}": [f"p{(i * 7 + 3) % 60}", f"p{(i * 11 + 1) % 60}"]
                                             for i in range(60)}})


def with_schema(number):
    return {"text": "x", "sampling_params": {"max_new_tokens": 1, "json_schema": dear_schema(number)}}


def taken_schema(number):
    """A tenth of that, and it is taken."""
    schema = json.loads(dear_schema(number))
    schema["dependentRequired"] = {f"p{i}": schema["dependentRequired"][f"p{i}"] for i in range(7)}
    return json.dumps(schema)


def many_grammars(count):
    """A body with a grammar of its own for each prompt."""
    return {"text": ["x"] * count,
            "sampling_params": [{"max_new_tokens": 1, "json_schema": taken_schema(i)} for i in range(count)]}


def one_grammar(prompts, num_bytes):
    """A body with one long grammar for all prompts."""
    schema = json.dumps({"type": "object", "title": "t" * num_bytes})
    return {"text": ["x"] * prompts, "sampling_params": {"max_new_tokens": 1, "json_schema": schema}}


def echo(tokens, choices, alternatives, **more):
    return {"prompt": [5] * tokens, "max_tokens": 1, "n": choices, "echo": True, "logprobs": alternatives, **more}


def native(tokens, choices, alternatives, max_tokens=1, start=0, **more):
    return {"input_ids": [5] * tokens, "return_logprob": True, "logprob_start_len": start,
            "top_logprobs_num": alternatives,
            "sampling_params": {"max_new_tokens": max_tokens, "n": choices, "ignore_eos": True}, **more}


def without_logprobs(tokens, choices):
    return {"input_ids": [5] * tokens, "sampling_params": {"max_new_tokens": 1, "n": choices}}


def chat(tokens, choices, alternatives, max_tokens=1, **more):
    return {"model": "default", "messages": [{"role": "user", "content": "a " * tokens}], "n": choices,
            "max_tokens": max_tokens, "ignore_eos": True, "logprobs": True, "top_logprobs": alternatives, **more}


def scores(tokens, items, labels):
    return {"query": [5] * tokens, "items": [[6 + i] for i in range(items)],
            "label_token_ids": list(range(10, 10 + labels))}


ONE_TOKEN = {"text": "Hi", "sampling_params": {"max_new_tokens": 1}}


class Bystanders:
    """Streams, probes and one-token requests of another key, for as long as the block lasts."""

    def __init__(self, server):
        self.server = server
        self.gaps, self.probes, self.answers = [0.0] * STREAMS, [], []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.stream, args=(i,)) for i in range(STREAMS)]
        self.threads += [threading.Thread(target=self.time_calls, args=(self.probes, "GET", "/livez", None)),
                         threading.Thread(target=self.time_calls, args=(self.answers, "POST", "/generate", ONE_TOKEN))]

    def stream(self, index):
        body = {"text": f"stream {index}", "stream": True,
                "sampling_params": {"max_new_tokens": 30000, "ignore_eos": True}}
        connection, response = self.server.open("POST", "/generate", body, BOB)
        last = None
        while not self.stopping.is_set():
            line = response.readline()
            if not line.startswith(b"data:"):
                continue
            now = time.monotonic()
            if last is not None:
                self.gaps[index] = max(self.gaps[index], now - last)
            last = now
        connection.close()

    def time_calls(self, seconds, method, path, body):
        while not self.stopping.is_set():
            start = time.monotonic()
            assert self.server.ask(method, path, body, BOB)[0] == 200
            seconds.append(time.monotonic() - start)
            time.sleep(0.05)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(1)
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE_SECONDS)

    def figures(self):
        return {"longest_gap_ms": round(max(self.gaps) * 1000), "livez_max_ms": round(max(self.probes) * 1000),
                "one_token_p50_ms": round(sorted(self.answers)[len(self.answers) // 2] * 1000, 1),
                "one_token_max_ms": round(max(self.answers) * 1000)}


def memory_mb(server, what="VmRSS"):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return int(re.search(rf"{what}:\s+(\d+) kB", status.read())[1]) // 1024


def send_at_once(server, calls):
    """Statuses of (method, path, body as bytes), each from a thread of its own, as alice. Answers are read piece by piece:
    a large one that is parsed holds up every thread of this process, and so what the bystanders measure."""
    statuses = collections.Counter()

    def call(method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
        connection.request(method, path, body, {"Authorization": f"Bearer {ALICE}"})
        response = connection.getresponse()
        is_whole = True
        try:
            while response.read(65536):
                pass
        except http.client.IncompleteRead:  # a stream that ended with an error
            is_whole = False
        connection.close()
        statuses[response.status if is_whole else f"{response.status}, cut"] += 1
    threads = [threading.Thread(target=call, args=one) for one in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return dict(statuses)


def measure(calls, *args, settle_seconds=0):
    """The bystanders' figures while alice's calls are answered, all sent at once, and what they did to memory."""
    calls = [(method, path, json.dumps(body).encode()) for method, path, body in calls]
    with ServingProcess(*SETTINGS, *args) as server:
        server.ask("POST", "/generate", ONE_TOKEN, ALICE)
        before = memory_mb(server)
        with Bystanders(server) as bystanders:
            start = time.monotonic()
            statuses = send_at_once(server, calls)
            seconds = time.monotonic() - start
        deadline = time.monotonic() + settle_seconds
        while time.monotonic() < deadline and memory_mb(server) > before + 32:
            time.sleep(0.2)
        return {"statuses": statuses, "seconds": round(seconds, 1), **bystanders.figures(), "before_mb": before,
                "peak_mb": memory_mb(server, "VmHWM"), "after_mb": memory_mb(server)}


def grammars(count, *args):
    return measure([("POST", "/generate", with_schema(i)) for i in range(count)], *args, settle_seconds=10)


def answers(body, count=1, *args, path="/v1/completions"):
    return measure([("POST", path, body)] * count, *args, settle_seconds=10)


def bodies(count, body):
    return measure([("POST", "/generate", body)] * count, settle_seconds=10)


def grammar_beside(body):
    """The longest that bob waits for a grammar that is new, while alice's body is compiled."""
    with ServingProcess(*SETTINGS) as server:
        thread = threading.Thread(target=server.ask, args=("POST", "/generate", body, ALICE))
        thread.start()
        longest = 0
        for i in range(8):
            time.sleep(0.1)
            start = time.monotonic()
            own = {"text": "x", "sampling_params": {"max_new_tokens": 1, "regex": f"[a-c]{{{i + 3}}}"}}
            assert server.ask("POST", "/generate", own, BOB)[0] == 200
            longest = max(longest, time.monotonic() - start)
        thread.join(PATIENCE_SECONDS)
        return {"max_ms": round(longest * 1000)}


def names(count, num_bytes):
    return measure([("POST", "/generate", {"a" * num_bytes: 1, "text": "x"})] * count)


def hello(curve):
    """A client's first message of TLS with a share of a key on that curve."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ecdh_curve(curve)
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def processor_ms(server):
    """Of all threads of the server, so far."""
    return sum(int(task.read_text(encoding="ascii").split()[0])
               for task in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/schedstat")) / 1e6


def say_hello(server, count, message):
    """How many were answered."""
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    for one in sockets:
        one.sendall(message)
    answered = sum(one.recv(65536)[:1] == b"\x16" for one in sockets)  # a message of a handshake
    for one in sockets:
        one.close()
    return answered


@contextlib.contextmanager
def tls_server():
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/cert.pem", f"{folder}/key.pem"
        make_certificate(certificate, key)
        with ServingProcess(*SETTINGS, "--ssl-certfile", certificate, "--ssl-keyfile", key, tls=certificate) as server:
            yield server


def hello_cost(server, message, count=300):
    """Processor time of the server, which does nothing else."""
    say_hello(server, 2, message)
    before = processor_ms(server)
    assert say_hello(server, count, message) == count
    return round((processor_ms(server) - before) / count, 2)


def hellos(count, curve, rounds=8, seconds=1.0):
    """Clients that send the same hello, which costs them nothing, and wait for what comes; so long with them and so long
    without, in turns, so that what the machine does besides is in both."""
    message = hello(curve)
    with tls_server() as server:
        cost = hello_cost(server, message)
        answered, gaps = 0, {True: [], False: []}
        with Bystanders(server) as bystanders:
            for turn in range(2 * rounds):
                has_hellos = turn % 2 == 1
                bystanders.gaps[:] = [0.0] * STREAMS
                start = time.monotonic()
                answered += say_hello(server, count if has_hellos else 0, message)
                time.sleep(max(0.0, start + seconds - time.monotonic()))
                gaps[has_hellos].append(max(bystanders.gaps) * 1000)
        return {"answered": answered, "of": count * rounds, "processor_ms_each": cost,
                "gap_ms_with": [round(gap) for gap in sorted(gaps[True])],
                "gap_ms_without": [round(gap) for gap in sorted(gaps[False])],
                "livez_max_ms": bystanders.figures()["livez_max_ms"]}


def fan_out(prompts, tokens, max_tokens=1):
    """A body of many prompts, no two of which share anything."""
    ids = [[10 + i] + [5] * (tokens - 1) for i in range(prompts)]
    return measure([("POST", "/v1/completions", {"prompt": ids, "max_tokens": max_tokens, "ignore_eos": True})])


def choices(count, tokens, max_tokens):
    body = {"prompt": [5] * tokens, "n": count, "max_tokens": max_tokens, "ignore_eos": True}
    return measure([("POST", "/v1/completions", body)])


def main():
    rows = {
        "nothing": lambda: measure([]),
        "32 grammars": lambda: grammars(32),
        "8 grammars, 8 workers": lambda: grammars(8, "--num-workers", "8"),
        "100 grammars in one body": lambda: bodies(1, many_grammars(100)),
        "beside it a grammar of another key": lambda: grammar_beside(many_grammars(100)),
        "4 bodies of 1,000 prompts with one schema of 200 KB": lambda: bodies(4, one_grammar(1000, 200_000)),
        "10,000 tokens x 128 x 20": lambda: answers(echo(10_000, 128, 20)),
        "9,000 tokens x 3 x 20": lambda: answers(echo(9_000, 3, 20)),
        "27,000 tokens x 1 x 20": lambda: answers(echo(27_000, 1, 20)),
        "100,000 tokens x 1 x 4": lambda: answers(echo(100_000, 1, 4)),
        "in a stream: 9,000 tokens x 1 x 20": lambda: answers(echo(9_000, 1, 20, stream=True)),
        "/generate, 10,000 tokens x 128 x 20": lambda: answers(native(10_000, 128, 20), path="/generate"),
        "/generate, 220 tokens x 128 x 20": lambda: answers(native(220, 128, 20), path="/generate"),
        "/generate, 4,600 tokens x 128": lambda: answers(native(4600, 128, 0), path="/generate"),
        "/generate, 100,000 tokens x 1 x 4": lambda: answers(native(100_000, 1, 4), path="/generate"),
        "/generate, 100,000 tokens x 128 without": lambda: answers(without_logprobs(100_000, 128), path="/generate"),
        "/generate, 60,000 tokens x 128 without": lambda: answers(without_logprobs(60_000, 128), path="/generate"),
        "/generate, 1,000 written x 128 x 20": lambda: answers(native(10, 128, 20, 1000, start=-1), path="/generate"),
        "/generate, stream, 100,000 tokens, 200 written": lambda: answers(
            native(100_000, 1, 0, 200, stream=True), path="/generate"),
        "/generate, stream, 2,000 written x 128 x 20": lambda: answers(
            native(10, 128, 20, 2000, start=-1, stream=True), path="/generate"),
        "chat, 10,000 tokens x 128 x 20": lambda: answers(chat(10_000, 128, 20, prompt_logprobs=20), path=CHAT),
        "chat, 28,000 tokens x 128 x 20": lambda: answers(chat(28_000, 128, 20, prompt_logprobs=20), path=CHAT),
        "chat, 100,000 tokens x 1 x 4": lambda: answers(chat(100_000, 1, 4, prompt_logprobs=4), path=CHAT),
        "chat, 1,000 written x 128 x 20": lambda: answers(chat(10, 128, 20, 1000), path=CHAT),
        "chat, stream, 1,000 written x 128 x 20": lambda: answers(chat(10, 128, 20, 1000, stream=True), path=CHAT),
        "completions, 1,000 written x 128 x 20": lambda: answers(
            {"prompt": [5] * 10, "n": 128, "max_tokens": 1000, "ignore_eos": True, "logprobs": 20}),
        "scores, 7,800 tokens, 1,024 labels": lambda: answers(scores(7800, 1, 1024), path="/v1/score"),
        "scores, 60,000 tokens, 128 labels": lambda: answers(scores(60_000, 1, 128), path="/v1/score"),
        "scores, 100,000 tokens, 1,024 labels": lambda: answers(scores(100_000, 1, 1024), path="/v1/score"),
        "128 prompts of 20,000 tokens in one body": lambda: fan_out(128, 20_000),
        "128 prompts of 3,000 tokens in one body": lambda: fan_out(128, 3_000),
        "128 choices of 2,000 tokens": lambda: choices(128, 1_000, 2_000),
        "32 names of 240 KB": lambda: names(32, 240_000),
        "60 hellos with a share on P-521": lambda: hellos(60, "secp521r1"),
        "60 hellos with a share on P-384": lambda: hellos(60, "secp384r1"),
        "60 hellos with a share on P-256": lambda: hellos(60, "prime256v1"),
    }
    for name, row in rows.items():
        if not sys.argv[1:] or any(word in name for word in sys.argv[1:]):
            print(f"{name}: {json.dumps(row())}", flush=True)


if __name__ == "__main__":
    main()
