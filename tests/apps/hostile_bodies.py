"""What large and hostile bodies do to a server: with little memory (every request is answered, streams are exact, the
process lives and gives its memory back), and to the short requests beside them (how long they wait).

    FATHOM_PROGRAM=build/release/apps/fathom python3 tests/apps/hostile_bodies.py memory --seconds 120
    FATHOM_PROGRAM=build/release/apps/fathom python3 tests/apps/hostile_bodies.py waiting --seconds 10

The simulation backend stands for the model: its tokens are exact whatever happens around it.
"""
import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import queue
import select
import socket
import sys
import tempfile
import threading
import time

import dear_requests
import serving_process
from serving_process import ServingProcess

MEGABYTE = 1 << 20
LIMITS_MB = (300, 400, 600, 1000, 1500, 2000, 3000)
ANSWERS = (200, 400, 413, 429, 503)
CLIENTS, STREAMS = 6, 20
PATIENCE_SECONDS = 120
KEPT_MB = 32  # what a heap may keep after long bodies: its free end, and pieces between what lives


def repeated(head, item, tail, num_bytes):
    count = (num_bytes - len(head) - len(tail)) // len(item)
    return head + item * count + tail


def many_keys(head, tail, num_bytes):
    return head + b",".join(b'"k%d":%d' % (i, i) for i in range(num_bytes // 16)) + tail


def nested(head, tail, num_bytes):
    return head + b"[" * (num_bytes // 2) + b"]" * (num_bytes // 2) + tail


def small(value, _):
    """What costs much by what it asks for, whatever its size."""
    return json.dumps(value).encode()


CHAT = {"messages": [{"role": "user", "content": "Hello"}]}

# (path, function that makes the body, its arguments but for the size): each is a body that a client with a valid key
# may send.
HOSTILE = (
    ("/tokenize", repeated, b'{"prompt":"x","user":[', b"[],", b"[]]}"),
    ("/v1/completions", repeated, b'{"prompt":[', b"[],", b"[]]}"),
    ("/v1/completions", nested, b'{"prompt":"x","user":', b"}"),
    ("/generate", repeated, b'{"text":"', b"a", b'"}'),
    ("/generate", repeated, b'{"text":"x","user":"', b"\\u00e9", b'"}'),
    ("/tokenize", many_keys, b'{"prompt":"x",', b"}"),
    ("/tokenize", many_keys, b'{"prompt":["x"],"user":{', b"}}"),
    ("/v1/chat/completions", many_keys, b'{"messages":[{"role":"user","content":"x"}],"tools":[{', b"}]}"),
    ("/v1/chat/completions", repeated, b'{"messages":[', b'{"role":"user","content":"x"},',
     b'{"role":"user","content":"x"}]}'),
    ("/generate", repeated, b'{"input_ids":[', b"1,", b"1]}"),
    ("/detokenize", repeated, b'{"tokens":[', b"[5],", b"[5]]}"),
    ("/abort_request", repeated, b'{"rid":[', b"{},", b"{}]}"),
    ("/v1/completions", small, dear_requests.echo(10_000, 128, 20)),
    ("/v1/completions", small, dear_requests.echo(9_000, 1, 20)),
    ("/v1/completions", small, dear_requests.echo(2_000, 4, 20, stream=True)),
    ("/v1/completions", small, {"prompt": [[10 + i] + [5] * 100 for i in range(100)], "max_tokens": 8}),
    ("/generate", small, dear_requests.with_schema(1)),
    ("/generate", small, {"a" * 240_000: 1, "text": "x"}),
    ("/generate", small, {"text": "x", "sampling_params": {"b" * 240_000: 1}}),
    ("/generate", small, dear_requests.many_grammars(12)),
    ("/generate", small, dear_requests.one_grammar(1000, 200_000)),
    ("/generate", small, {"text": "x", "rid": "r" * 240_000}),
    ("/generate", small, {"text": ["x"] * 1000, "rid": [f"{i}" for i in range(1000)],
                          "sampling_params": {"max_new_tokens": 1}}),
    ("/v1/chat/completions", small, {**CHAT, "n": 128, "logprobs": True, "top_logprobs": 20, "prompt_logprobs": 20,
                                     "max_tokens": 2}),
    ("/v1/chat/completions", small, {**CHAT, "n": 32, "max_tokens": 40, "thinking_token_budget": 5,
                                     "chat_template_kwargs": {"thinking": True}, "response_format": {"type": "json_object"}}),
    ("/v1/messages", small, {**CHAT, "max_tokens": 60, "thinking": {"type": "enabled", "budget_tokens": 40}}),
    ("/v1/responses", small, {"input": "x" * 2000, "store": True, "max_output_tokens": 1}),
    ("/v1/responses", repeated, b'{"store":true,"max_output_tokens":1,"input":[', b'{"role":"user","content":"x"},',
     b'{"role":"user","content":"x"}]}'),
    ("/v1/score", small, {"query": "x", "items": ["y"] * 500, "label_token_ids": [5, 6]}),
)


def hostile_body(which, num_bytes):
    """Path and body."""
    path, make, *parts = HOSTILE[which]
    return path, make(*parts, num_bytes)


def status_in(answer):
    line = answer.split(b"\r\n", 1)[0].split(b" ")
    return int(line[1]) if len(line) > 1 and line[0].startswith(b"HTTP/") else 0


def post_raw(port, path, body):
    """The status; 0 = no answer. A server that refuses a body says so before it has read it."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode())
        left = memoryview(body)
        with contextlib.suppress(ConnectionError):
            while left and not select.select([client], [], [], 0)[0]:
                left = left[client.send(left[:256 << 10]):]
        answer = b""
        with contextlib.suppress(ConnectionError):
            while len(answer) < 64 and (piece := client.recv(4096)):
                answer += piece
    return status_in(answer)


@contextlib.contextmanager
def limited_program(megabytes):
    """FATHOM_PROGRAM under `ulimit -v`."""
    program = serving_process.PROGRAM
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "fathom"
        script.write_text(f'#!/bin/sh\nulimit -v {megabytes * 1024}\nexec "{pathlib.Path(program).resolve()}" "$@"\n',
                          encoding="utf-8")
        script.chmod(0o755)
        serving_process.PROGRAM = str(script)
        try:
            yield
        finally:
            serving_process.PROGRAM = program


def resident_mb(server):
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0


def settle(server, rss_mb):
    """Long bodies whose clients have their answer, or have gone, may still wait for their worker, and what the last one
    took goes back behind its answer. Waits until at most rss_mb are resident; how long, in seconds."""
    begin = time.monotonic()
    while time.monotonic() < begin + PATIENCE_SECONDS:
        if server.metrics()["fathom:request_bodies_bytes"] == 0 and resident_mb(server) <= rss_mb:
            break
        time.sleep(0.05)
    return time.monotonic() - begin


class Streams:
    """Clients that stream the same prompts again and again, and compare."""

    def __init__(self, server, count):
        self.server, self.count = server, count
        self.lock = threading.Lock()
        self.results = collections.Counter()
        self.wrong = []
        self.expected = [self.events(i)[1] for i in range(count)]
        assert all(self.expected), "no reference"

    @staticmethod
    def body(i):
        return {"text": f"Stream number {i} of apples",
                "sampling_params": {"max_new_tokens": 30, "temperature": 0, "ignore_eos": True}}

    def events(self, i):
        """Status and the whole text; None for a stream that ended with an error."""
        connection, response = self.server.open("POST", "/generate", {**self.body(i), "stream": True})
        text = response.read().decode()
        connection.close()
        if response.status != 200:
            return response.status, None
        events = serving_process.events_of(text)
        whole = len(events) > 1 and events[-1] == "[DONE]" and "text" in events[-2]
        return 200, events[-2]["text"] if whole else None

    def run(self, i, is_over):
        while not is_over():
            status, text = self.events(i)
            with self.lock:
                if status == 200 and text != self.expected[i]:
                    self.wrong.append((i, text))
                self.results["exact" if text == self.expected[i] else f"status {status}"] += 1

    def threads(self, is_over):
        return [threading.Thread(target=self.run, args=(i, is_over)) for i in range(self.count)]


def besiege(limit_mb, seconds, body_bytes, *more_args, wanted=()):
    """Six hostile bodies at a time beside twenty streams, in an address space of limit_mb. What happened, as a dict.
    Goes on past its seconds until every wanted status has been an answer, on a busy machine too."""
    bodies = [hostile_body(i, body_bytes) for i in range(len(HOSTILE))]
    answers, problems = collections.Counter(), []
    lock = threading.Lock()
    turn = iter(range(1 << 30))

    with limited_program(limit_mb), ServingProcess("--engine", "sim", "--sim-step-us", "2000", "--max-total-tokens",
                                                   "16384", *more_args) as server:
        streams = Streams(server, STREAMS)
        before = resident_mb(server)
        begin = time.monotonic()

        def is_over():
            elapsed = time.monotonic() - begin
            return elapsed > seconds and (elapsed > PATIENCE_SECONDS or all(answers[status] for status in wanted))

        def send_hostile():
            while not is_over():
                with lock:
                    path, body = bodies[next(turn) % len(bodies)]
                try:
                    status = post_raw(server.port, path, body)
                except OSError as error:
                    status = 0
                    problems.append(f"{path}: {error}")
                with lock:
                    answers[status] += 1
                    if status not in ANSWERS:
                        problems.append(f"{path}: {body[:30]!r}... got {status}")

        threads = streams.threads(is_over) + [threading.Thread(target=send_hostile) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alive = server.process.poll() is None
        settled = settle(server, before + KEPT_MB) if alive else 0
        after = resident_mb(server) if alive else 0
        canary = streams.events(0)[1] == streams.expected[0] if alive else False
        metrics = server.metrics() if alive else {}
    return {"limit_mb": limit_mb, "alive": alive, "canary": canary, "answers": dict(answers), "problems": problems[:5],
            "streams": dict(streams.results), "wrong_streams": streams.wrong, "rss_before_mb": round(before),
            "rss_after_mb": round(after), "settled_after_s": round(settled, 1), "exit": server.process.returncode,
            "bodies_left": metrics.get("fathom:request_bodies_bytes"),
            "failures": metrics.get("fathom:allocation_failures_total"),
            "reserve_uses": metrics.get("fathom:memory_reserve_uses_total"), "log": server.log_text()}


def is_good(result):
    return (result["alive"] and result["canary"] and not result["problems"] and not result["wrong_streams"]
            and result["exit"] == 0 and result["bodies_left"] == 0
            and result["rss_after_mb"] <= result["rss_before_mb"] + KEPT_MB and result["streams"].get("exact", 0) > 0)


def memory(arguments):
    good = True
    for limit_mb in arguments.limits_mb:
        result = besiege(limit_mb, arguments.seconds, arguments.body_mb * MEGABYTE)
        log = result.pop("log")
        print(json.dumps(result), flush=True)
        if not is_good(result):
            good = False
            print(log[-3000:], file=sys.stderr)
    return good


def flood(port, path, body, is_over, answers):
    os.nice(10)  # the clients of long bodies are not what is measured
    while not is_over.is_set():
        answers.put(post_raw(port, path, body))


def waits(server, count):
    """Milliseconds of one-token requests, one after the other."""
    measured = []
    connection = server.connection()
    body = json.dumps({"text": "Hi", "sampling_params": {"max_new_tokens": 1, "temperature": 0}})
    for _ in range(count):
        begin = time.monotonic()
        connection.request("POST", "/generate", body)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        measured.append((time.monotonic() - begin) * 1e3)
        time.sleep(0.005)
    connection.close()
    return measured


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def measure_waiting(seconds, body_bytes, only, *more_args, least_answers=1):
    """A short request alone, and beside six long bodies all the time: for some seconds, and until some of the long
    ones have been answered."""
    path, body = hostile_body(only, body_bytes)
    with ServingProcess("--engine", "sim", *more_args) as server:
        alone = waits(server, 200)
        answers, is_over = multiprocessing.Queue(), multiprocessing.Event()
        begin = time.monotonic()
        senders = [multiprocessing.Process(target=flood, args=(server.port, path, body, is_over, answers))
                   for _ in range(CLIENTS)]
        for sender in senders:
            sender.start()
        statuses = collections.Counter([answers.get(timeout=PATIENCE_SECONDS)])  # they have begun
        beside = []
        while not beside or time.monotonic() < begin + seconds or (
                statuses.total() < least_answers and any(sender.is_alive() for sender in senders)):
            beside += waits(server, 5)
            while not answers.empty():
                statuses[answers.get()] += 1
        is_over.set()
        while any(sender.is_alive() for sender in senders) or not answers.empty():
            with contextlib.suppress(queue.Empty):
                statuses[answers.get(timeout=0.1)] += 1
        for sender in senders:
            sender.join()
    return {"alone_p50_ms": quantile(alone, 0.5), "alone_max_ms": max(alone), "beside_p50_ms": quantile(beside, 0.5),
            "beside_p99_ms": quantile(beside, 0.99), "beside_max_ms": max(beside), "num_beside": len(beside),
            "long_answers": dict(statuses)}


def waiting(arguments):
    for only in arguments.only:
        path, body = hostile_body(only, 200)
        result = measure_waiting(arguments.seconds, arguments.body_mb * MEGABYTE, only)
        print(json.dumps({"body": f"{path} {body[:24].decode()}...",
                          **{k: round(v, 2) if isinstance(v, float) else v for k, v in result.items()}}), flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("memory", "waiting"))
    parser.add_argument("--seconds", type=float, default=120, help="for each limit or body")
    parser.add_argument("--body-mb", type=int, default=60)
    parser.add_argument("--limits-mb", type=int, nargs="+", default=LIMITS_MB, help="of the address space")
    parser.add_argument("--only", type=int, nargs="+", default=(0, 1, 3, 8), help="which bodies, for waiting")
    arguments = parser.parse_args()
    return 0 if (memory if arguments.what == "memory" else waiting)(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
