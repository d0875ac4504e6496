"""KV events of `fathom serve`, read as routers read vLLM's: what an index made of them says is cached is what the server
finds cached. By PyPI's pyzmq and msgspec."""
import ctypes.util
import json
import os
import random
import re
import socket
import subprocess
import time
import unittest
import urllib.request

import skipping
import venv_python

if not ctypes.util.find_library("zmq"):
    skipping.skip("ZeroMQ's library is not installed", "install libzmq5 (tools/install_packages.sh test)")
venv_python.enter("kv-events")

import msgspec  # noqa: E402
import zmq  # noqa: E402
from serving import DEMO, PATIENCE_SECONDS, Serving  # noqa: E402

BLOCK = 64
QUIET_MS = 150  # after which a batch that was on its way is there; long for a thread that only has to wake


class Event(msgspec.Struct, array_like=True, tag=True, gc=False):
    pass


class BlockStored(Event):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None


class BlockRemoved(Event):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class Router:
    """An index of one rank's cache: names of blocks by what comes before them, their salt and their tokens."""

    def __init__(self, context, port, topic):
        self.socket = context.socket(zmq.SUB)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.socket.subscribe(topic)
        self.blocks, self.keys, self.batches, self.ranks, self.kinds = {}, {}, [], set(), set()

    def read(self, sequence, payload):
        batch = msgspec.msgpack.decode(payload, type=Batch)
        assert int.from_bytes(sequence, "big") == len(self.batches), "a batch is missing"
        self.batches.append(payload)
        self.ranks.add(batch.data_parallel_rank)
        for event in batch.events:
            self.kinds.add(type(event))
            if isinstance(event, BlockStored):
                self.store(event)
            elif isinstance(event, BlockRemoved):
                for name in event.block_hashes:
                    del self.blocks[self.keys.pop(name)]
            else:
                self.blocks, self.keys = {}, {}

    def store(self, event):
        parent = event.parent_block_hash
        assert parent is None or parent in self.keys, "the parent is not there"
        assert event.block_size == BLOCK and event.medium == "GPU"
        for i, name in enumerate(event.block_hashes):
            salt = event.extra_keys[i] if event.extra_keys else None
            key = (parent, salt, tuple(event.token_ids[i * BLOCK:(i + 1) * BLOCK]))
            assert name not in self.keys and len(key[2]) == BLOCK
            self.blocks[key], self.keys[name] = name, key
            parent = name

    def follow(self, until=lambda: True):
        """Takes what is there and what comes within a moment, and goes on until something holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self.socket.poll(QUIET_MS):
                _, sequence, payload = self.socket.recv_multipart()
                self.read(sequence, payload)
            elif until() or time.monotonic() > deadline:
                return

    def cached_tokens(self, tokens, salt=None):
        parent, count = None, 0
        # The last token is always computed.
        while count + BLOCK < len(tokens):
            key = (parent, (salt,) if salt and parent is None else None, tuple(tokens[count:count + BLOCK]))
            if key not in self.blocks:
                break
            parent, count = self.blocks[key], count + BLOCK
        return count


def free_ports(count):
    """The first of so many ports in a row that nobody has."""
    while True:
        first = random.randrange(20000, 30000)
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, one in enumerate(sockets):
                one.bind(("", first + i))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()


class KvEventsTest(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.addCleanup(self.context.destroy, linger=0)
        self.random = random.Random(1)

    def start(self, num_ranks=1, **config):
        first = free_ports(2 * num_ranks)
        self.port, self.replay_port = first, first + num_ranks
        config = {"publisher": "zmq", "endpoint": f"tcp://*:{self.port}", "topic": "kv@pod@demo",
                  "replay_endpoint": f"tcp://*:{self.replay_port}", **config}
        ranks = ["--tp-size", "2", "--enable-dp-attention", "--dp-size", "2"] if num_ranks == 2 else []
        server = Serving("--engine", "sim", "--kv-events-config", json.dumps(config), *ranks, max_total_tokens=2048)
        self.addCleanup(server.close)
        self.url = server.url
        routers = [Router(self.context, self.port + rank, "kv@") for rank in range(num_ranks)]
        for router in routers:
            self.addCleanup(router.socket.close, linger=0)
        # A subscriber that comes later asks for what it has missed.
        for rank, router in enumerate(routers):
            for sequence, payload in self.replay(0, rank):
                router.read(sequence, payload)
        return routers

    def replay(self, sequence, rank=0):
        asks = self.context.socket(zmq.DEALER)
        asks.connect(f"tcp://127.0.0.1:{self.replay_port + rank}")
        asks.send_multipart([b"", sequence.to_bytes(8, "big")])
        batches = []
        while True:
            self.assertTrue(asks.poll(1000 * PATIENCE_SECONDS), "no answer to a replay")
            delimiter, number, payload = asks.recv_multipart()
            self.assertEqual(delimiter, b"")
            if number == 8 * b"\xff":
                self.assertEqual(payload, b"")
                asks.close(linger=0)
                return batches
            batches.append((number, payload))

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.read().decode()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SECONDS) as answer:
            return answer.read().decode()

    def prompt(self):
        """Of few different blocks, so that prefixes meet; the cache holds 32 blocks."""
        blocks = [self.random.randrange(3) for _ in range(self.random.randrange(1, 9))]
        return [100 + block for block in blocks for _ in range(BLOCK)] + [7] * self.random.randrange(1, 40)

    def ask(self, tokens, **fields):
        body = {"input_ids": tokens, "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}, **fields}
        return json.loads(self.post("/generate", body))["meta_info"]["cached_tokens"]

    def test_an_index_knows_what_the_server_has_cached(self):
        router, = self.start()
        hits = 0
        for turn in range(30):
            tokens = self.prompt()
            salt = "mine" if turn % 5 == 4 else None
            router.follow()
            cached = self.ask(tokens, **({"cache_salt": salt} if salt else {}))
            self.assertEqual(router.cached_tokens(tokens, salt), cached)
            hits += cached > 0
        router.follow()
        self.assertGreater(hits, 10)
        self.assertEqual(router.ranks, {0})
        self.assertEqual(router.kinds, {BlockStored, BlockRemoved, AllBlocksCleared})
        self.assertEqual([payload for _, payload in self.replay(0)], router.batches)
        self.assertEqual([number for number, _ in self.replay(len(router.batches) - 2)],
                         [n.to_bytes(8, "big") for n in range(len(router.batches) - 2, len(router.batches))])
        self.post("/flush_cache", {})
        router.follow()
        self.assertEqual(router.blocks, {})
        metrics = self.get("/metrics")
        self.assertEqual(float(re.search(r"^fathom:kv_event_batches_total\{.*\} (\S+)", metrics, re.M)[1]),
                         len(router.batches))
        self.assertEqual(float(re.search(r"^fathom:kv_events_lost_total\{.*\} (\S+)", metrics, re.M)[1]), 0)
        self.assertEqual(json.loads(self.get("/server_info"))["kv_events"],
                         {"publisher": "zmq", "topic": "kv@pod@demo", "endpoint_host": "*",
                          "endpoint_port_base": self.port, "block_size": BLOCK, "dp_size": 1})

    def test_each_rank_of_data_has_a_port_of_its_own(self):
        routers = self.start(num_ranks=2)
        for _ in range(12):
            tokens = self.prompt()
            for router in routers:
                router.follow()
            # The server puts a request where most of its prefix is.
            self.assertEqual(max(router.cached_tokens(tokens) for router in routers), self.ask(tokens))
        for rank, router in enumerate(routers):
            router.follow()
            self.assertEqual(router.ranks, {rank})
        # Where nobody else runs the first rank takes what is new: give the second something to do.
        bodies = [{"input_ids": [50 + i] * 200, "sampling_params": {"max_new_tokens": 2}} for i in range(6)]
        self.post("/generate", {"input_ids": [body["input_ids"] for body in bodies],
                                "sampling_params": bodies[0]["sampling_params"]})
        for router in routers:
            router.follow(until=lambda r=router: r.blocks)
            self.assertTrue(router.blocks)

    def test_what_cannot_be_is_said_at_once(self):
        taken = free_ports(1)
        held = socket.socket()
        self.addCleanup(held.close)
        held.bind(("", taken))
        held.listen()
        for config, flags, words in [
                ({"publisher": "zmq", "endpoint": f"tcp://*:{taken}"}, [], f"cannot listen on tcp://\\*:{taken}: Address"),
                ({"publisher": "zmq", "endpoint": "5557"}, [], "must be tcp://HOST:PORT or ipc://PATH"),
                ({"publisher": "zmq"}, ["--disable-radix-cache"], "without a prefix cache there are no events")]:
            run = subprocess.run([os.environ["FATHOM_PROGRAM"], "serve", "--model-path", str(DEMO), "--port", "0",
                                  "--kv-events-config", json.dumps(config), *flags], capture_output=True, text=True,
                                 timeout=PATIENCE_SECONDS, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertRegex(run.stderr, f"--kv-events-config.*{words}")


if __name__ == "__main__":
    skipping.main()
