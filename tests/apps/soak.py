"""Minutes of everything at once on a small cache, with drafts: whole answers, streams, streams that are read late, clients
that go, and bodies that fan out; what comes is compared with what the server says when it is alone.

    FATHOM_PROGRAM=build/release/apps/fathom python3 tests/apps/soak.py --minutes 10

prints what was sent, compared and different; the exit status says whether all is well. The simulation backend stands for
the model: its tokens are exact whatever happens around it.
"""
import argparse
import collections
import json
import random
import sys
import threading
import time

from serving_process import ServingProcess, events_of

CLIENTS, CASES = 24, 40
SETTINGS = ("--engine", "sim", "--sim-step-us", "1000", "--max-total-tokens", "4000", "--max-running-requests", "16",
            "--chunked-prefill-size", "192", "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3",
            "--no-log-requests")
WAYS = ("whole", "stream", "late", "gone")


def case(number):
    draw = random.Random(number)
    shared = [7 + number % 5] * draw.choice((0, 64, 200))
    return {"input_ids": shared + [draw.randrange(10, 500) for _ in range(draw.randrange(1, 700))],
            "sampling_params": {"max_new_tokens": draw.randrange(1, 400), "temperature": draw.choice((0, 0.7)),
                                "sampling_seed": number, "n": draw.choice((1, 1, 1, 2, 8))}}


def texts(answer):
    return [one["text"] for one in (answer if isinstance(answer, list) else [answer])]


def streamed_texts(events, choices):
    last = [""] * choices
    for event in events:
        if event != "[DONE]":
            last[event.get("index", 0)] = event["text"]
    return last


class Soak:
    def __init__(self, server):
        self.server, self.counts, self.problems = server, collections.Counter(), []
        self.lock = threading.Lock()
        self.expected = [texts(server.ask("POST", "/generate", case(i))[1]) for i in range(CASES)]

    def send(self, number, way):
        """The texts that came, or None where the client has gone on purpose."""
        body = case(number)
        if way == "whole":
            status, answer = self.server.ask("POST", "/generate", body)
            assert status == 200, answer
            return texts(answer)
        connection, response = self.server.open("POST", "/generate", {**body, "stream": True})
        assert response.status == 200, response.read()
        if way == "gone":
            response.readline()
            connection.close()
            return None
        if way == "late":
            time.sleep(3)
        events = events_of(response.read().decode())
        connection.close()
        return streamed_texts(events, body["sampling_params"]["n"])

    def run(self, seed, until):
        draw = random.Random(seed)
        while time.monotonic() < until:
            number, way = draw.randrange(CASES), draw.choice(WAYS)
            try:
                came = self.send(number, way)
            except (OSError, AssertionError, ValueError) as error:
                came = f"lost: {error}"
            with self.lock:
                self.counts["sent"] += 1
                if came is None:
                    continue
                self.counts["compared"] += 1
                if came != self.expected[number]:
                    kind = "lost" if isinstance(came, str) else "different"
                    self.counts[kind] += 1
                    self.problems.append((number, way, str(came)[:200]))


def soak(seconds):
    """What was sent, compared, lost and different, and how the server was afterwards."""
    with ServingProcess(*SETTINGS) as server:
        work = Soak(server)
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=work.run, args=(i, until)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        metrics = server.metrics()
    counts = {name: work.counts[name] for name in ("sent", "compared", "lost", "different")}
    return {**counts, "problems": work.problems[:3], "retractions": metrics.get("fathom:retractions_total"),
            "violations": sum(value for name, value in metrics.items() if "invariant_violations" in name),
            "exit": server.process.returncode}


def is_good(result):
    return (result["compared"] > 0 and result["lost"] == result["different"] == result["violations"] == 0
            and result["exit"] == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    result = soak(60 * parser.parse_args().minutes)
    print(json.dumps(result))
    sys.exit(0 if is_good(result) else 1)


if __name__ == "__main__":
    main()
