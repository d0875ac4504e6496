"""Whether one key can tell by time what another has sent: pairs of requests of bob's, one that repeats what alice sent a
moment before and one that nobody sent, for everything that the server keeps. Of guesses that call the faster one
alice's, as many are right as by chance; of alice's own repetitions nearly all, where what is kept saves time.

    FATHOM_PROGRAM=build/release/apps/fathom python3 tests/apps/timing_between_keys.py [PAIRS]

prints how many guesses were right. The simulation backend stands for the model.
"""
import json
import random
import sys
import time

from serving_process import ServingProcess

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
SETTINGS = ("--engine", "sim", "--sim-step-us", "2000", "--max-total-tokens", "400000",
            "--api-key", f"alice:{ALICE}", "--api-key", f"bob:{BOB}")
RANDOM = random.Random(7)


def word():
    return "".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=20))


def one_token(**more):
    return {"sampling_params": {"max_new_tokens": 1, **more.pop("sampling", {})}, **more}


def grammar():
    pattern = "(" + "|".join(word() for _ in range(41)) + ")"
    return "POST", "/generate", one_token(text="x", sampling={"regex": pattern})


def refused_grammar():
    names = [word() for _ in range(20)]
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in names},
              "dependentRequired": {name: [names[(i * 7 + 3) % 20]] for i, name in enumerate(names)}}
    return "POST", "/generate", one_token(text="x", sampling={"json_schema": json.dumps(schema)})


def prefix():
    return "POST", "/generate", one_token(input_ids=[RANDOM.randrange(10, 500) for _ in range(9000)])


def text():
    return "POST", "/tokenize", {"model": "demo", "prompt": " ".join(word() for _ in range(500))}


KEPT = {"grammars": grammar, "refused grammars": refused_grammar, "prefixes": prefix, "pieces of text": text}


class Pairs:
    """`right` of `pairs` guesses were right: the faster request of two is said to be the one that was sent before."""

    def __init__(self, server, pairs):
        self.server, self.pairs = server, pairs

    def seconds(self, key, call):
        method, path, body = call
        start = time.perf_counter()
        self.server.ask(method, path, body, key)
        return time.perf_counter() - start

    def right(self, make, sender, guesser):
        count = 0
        for _ in range(self.pairs):
            known, unknown = make(), make()
            self.seconds(sender, known)
            first = RANDOM.random() < 0.5
            times = {}
            for is_known in (first, not first):
                times[is_known] = self.seconds(guesser, known if is_known else unknown)
            count += times[True] < times[False]
        return count

    def stored_responses(self):
        """Of bob's questions for a response of alice's and for one that never was, both answered 404."""
        def known():
            body = {"model": "default", "input": "Hi", "max_output_tokens": 1, "store": True}
            return self.server.ask("POST", "/v1/responses", body, ALICE)[1]["id"]

        count = 0
        for _ in range(self.pairs):
            stored = known()
            never = stored[:-8] + "".join(RANDOM.choices("0123456789abcdef", k=8))
            first = RANDOM.random() < 0.5
            times = {}
            for is_known in (first, not first):
                call = "GET", "/v1/responses/" + (stored if is_known else never), None
                times[is_known] = self.seconds(BOB, call)
                assert self.server.ask(*call, BOB)[0] == 404
            count += times[True] < times[False]
        return count


def measure(pairs):
    """By what is kept: right guesses of another key, and of the key that sent it."""
    rows = {}
    with ServingProcess(*SETTINGS) as server:
        timed = Pairs(server, pairs)
        for name, make in KEPT.items():
            rows[name] = timed.right(make, ALICE, BOB), timed.right(make, ALICE, ALICE)
        rows["stored responses"] = timed.stored_responses(), None
    return rows


def chance(pairs):
    """Between what guesses by chance are, but for one run in a thousand or fewer."""
    margin = 1.65 * pairs ** 0.5
    return pairs / 2 - margin, pairs / 2 + margin


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name, (others, own) in measure(pairs).items():
        print(f"{name}: of {pairs} pairs {others} told apart by another key, {own} by the same")
    print("by chance: {:.0f} to {:.0f}".format(*chance(pairs)))


if __name__ == "__main__":
    main()
