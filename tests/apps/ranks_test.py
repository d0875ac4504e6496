"""Several ranks from the command line: the tokens and answers of one, right answers in FP8, and what is refused in a
sentence."""
import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from serving_process import DEMO, PATIENCE_SECONDS, PROGRAM, ServingProcess, environment, events_of, eventually  # noqa: E402

FLOAT32 = ("--dequantize", "--dtype", "float32")
SMALL = ("--device", "cpu", "--max-total-tokens", 4096, "--max-running-requests", 8, "--chunked-prefill-size", 128)
QUESTION = "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"
DRAFTS = ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", 3)
LANES = ("--tp-size", 2, "--enable-dp-attention", "--dp-size", 2)


def run(command, *args, model=DEMO):
    return subprocess.run([PROGRAM, *command, "--model-path", str(model), *map(str, args)], capture_output=True,
                          text=True, timeout=PATIENCE_SECONDS, check=False, env=environment())


def generate(*args):
    done = run(("generate",), "--chat", "--temperature", 0, "--prompt", QUESTION, "--log-level", "error", *SMALL, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TokensTest(unittest.TestCase):
    def test_generate_says_what_one_rank_says(self):
        one = generate(*FLOAT32)
        self.assertIn("19", one)
        for args in (("--tp-size", 2), ("--tp-size", 8), ("--tp-size", 4, "--enable-ep-moe"),
                     ("--tp-size", 2, "--enable-ep-moe", "--ep-size", 2, *DRAFTS), LANES,
                     ("--tp-size", 4, "--enable-ep-moe", "--enable-dp-attention", "--dp-size", 2, *DRAFTS)):
            self.assertEqual(generate(*FLOAT32, *args), one, args)

    def test_fp8_answers_word_problems_on_any_number_of_ranks(self):
        for args in (("--tp-size", 2), LANES, ("--tp-size", 4, "--enable-ep-moe", *LANES[2:], *DRAFTS)):
            done = run(("eval", "gsm8k"), "--data", DEMO / "eval.json", "--shots", DEMO / "shots.json", "--num-questions",
                       8, "--parallel", 8, "--device", "cpu", "--min-accuracy", 1, *args)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class OneBatchTest(unittest.TestCase):
    def test_a_lane_has_room_for_its_sequences_and_reads_their_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.jsonl")
            for ranks, tokens in (((), 512), (("--tp-size", 2), 512), (LANES, 256)):
                done = run(("bench", "one-batch"), "--device", "cpu", "--batch-size", 4, "--input-len", 100, "--output-len", 4,
                           "--result-filename", result, *ranks)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"({tokens} tokens of", done.stderr)
            one, parts, lanes = (json.loads(line)["decode_cache_bytes"] for line in result.read_text().splitlines())
        self.assertEqual((parts, lanes), (2 * one, one))  # a rank of tensor parallelism reads the rows of all sequences


class RefusalTest(unittest.TestCase):
    def refused(self, part, *args, status=1):
        done = run(("generate",), "--prompt", "x", "--device", "cpu", *args)
        self.assertEqual(done.returncode, status, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("fathom: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(part, lines[0])

    def test_sizes_that_do_not_fit_are_one_sentence_with_flag_size_and_rule(self):
        self.refused("--tp-size 3 does not divide num_attention_heads, 8", "--tp-size", 3)
        self.refused("--tp-size 16 does not divide num_attention_heads, 8", "--tp-size", 16, *FLOAT32)
        self.refused("--tp-size", "--tp-size", 0, status=2)
        self.refused("--ep-size 2 needs --enable-ep-moe", "--tp-size", 2, "--ep-size", 2)
        self.refused("--ep-size 2 with --enable-ep-moe must be --tp-size, 4: all ranks share the experts",
                     "--tp-size", 4, "--enable-ep-moe", "--ep-size", 2)
        self.refused("--dp-size 2 needs --enable-dp-attention: without it, start 2 servers", "--tp-size", 2, "--dp-size", 2)
        self.refused("--enable-dp-attention needs --dp-size 2 or more, the groups that the ranks form",
                     "--tp-size", 2, "--enable-dp-attention")
        self.refused("--dp-size 3 does not divide --tp-size, 4: its groups have equally many ranks",
                     "--tp-size", 4, "--enable-dp-attention", "--dp-size", 3)
        self.refused("--dist-timeout needs --tp-size 2 or more: one rank waits for no other", "--dist-timeout", 7)
        self.refused("--dist-timeout", "--tp-size", 2, "--dist-timeout", 0, status=2)
        self.refused("--dp-size 128 is more than 64 groups", "--tp-size", 128, "--enable-dp-attention", "--dp-size", 128)
        self.refused("--tp-size 48 / --dp-size 2 does not divide num_attention_heads, 8",
                     "--tp-size", 48, "--enable-dp-attention", "--dp-size", 2)
        self.refused("--ep-size 2 with --enable-ep-moe must be --tp-size, 4", "--tp-size", 4, *LANES[2:],
                     "--enable-ep-moe", "--ep-size", 2)
        self.refused("--deterministic-tp 3 is not a power of two", "--deterministic-tp", 3)
        self.refused("--deterministic-tp 2 is not a multiple of --tp-size, 4: each rank computes as many parts of a sum",
                     "--tp-size", 4, "--deterministic-tp", 2)
        self.refused("--deterministic-tp 4 does not go with --enable-ep-moe", "--tp-size", 2, "--deterministic-tp", 4,
                     "--enable-ep-moe")
        self.refused("o_proj.weight: dimension 1 is 1024, which does not divide among 16 parts of --deterministic-tp in "
                     "multiples of 128", "--deterministic-tp", 16, *FLOAT32)
        # A head's 192 rows on each of eight ranks are a block of scales and a half.
        self.refused("q_b_proj.weight: dimension 0 is 1536, of which each of 8 ranks would hold 192, but parts with block scales are "
                     "multiples of 128 or divide it: they may not straddle blocks of scales (--dequantize does without "
                     "them)", "--tp-size", 8)

    def test_a_simulation_refuses_what_only_a_model_has(self):
        for part, args in (("--enable-ep-moe needs --engine model", ("--tp-size", 2, "--enable-ep-moe")),
                           ("--deterministic-tp needs --engine model", ("--deterministic-tp", 2)),
                           ("--dist-timeout needs --engine model", ("--tp-size", 2, "--dist-timeout", 3)),
                           ("--dp-size 2 does not divide --tp-size, 1", LANES[2:]),
                           ("--tp-size 3 does not divide num_attention_heads, 8", ("--tp-size", 3))):
            done = run(("serve",), "--engine", "sim", *args, "--port", 0)
            self.assertEqual(done.returncode, 1)
            self.assertIn(part, done.stderr)

    def test_memory_is_shared_by_the_ranks_of_a_host(self):
        for size, shared in ((1, False), (4, True)):
            done = run(("generate",), "--prompt", "x", "--max-new-tokens", 1, *SMALL, "--tp-size", size, *FLOAT32)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("shared_by=4" in done.stderr, shared, done.stderr)
            self.assertEqual("ranks=4" in done.stderr, shared, done.stderr)
        # Weights of all ranks together.
        done = run(("bench", "one-batch"), "--device", "cpu", "--load-format", "dummy", "--tp-size", 4,
                   model=DEMO.parent / "configs" / "kimi-k2")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"fathom: weights larger than memory: they take .* in all ranks of --tp-size 4, and .* are free on ")
        # What no share of it holds is refused with the share.
        done = run(("generate",), "--prompt", "x", "--device", "cpu", "--tp-size", 4, "--max-total-tokens", 1 << 32, *FLOAT32)
        self.assertEqual(done.returncode, 1)
        self.assertIn("are free for each of 4 ranks that share them", done.stderr)


class InspectTest(unittest.TestCase):
    def inspect(self, *args):
        model = DEMO.parent / "configs" / "deepseek-v3"
        done = run(("inspect",), "--load-format", "dummy", "--device", "cpu", "--json", *args, model=model)
        return done.returncode, json.loads(done.stdout)

    def test_says_what_each_rank_holds_and_whether_it_fits(self):
        # The configuration alone is enough.
        status, value = self.inspect("--gpus", 8, "--enable-ep-moe", "--gpu-memory", 140.4)
        self.assertEqual((status, value["problems"]), (0, []))
        ranks = value["ranks"]
        self.assertEqual((ranks["tp_size"], ranks["ep_size"]), (8, 8))
        self.assertEqual(round(ranks["weight_bytes"] / 1e9, 1), 85.4)
        self.assertGreater(ranks["cache_tokens"], 700_000)
        self.assertEqual(value["fit"]["cache_tokens"], ranks["cache_tokens"])
        _, value = self.inspect("--tp-size", 8, "--enable-ep-moe", "--enable-dp-attention", "--dp-size", 8, "--gpu-memory",
                                140.4)
        ranks = value["ranks"]
        self.assertEqual((ranks["tp_size"], ranks["dp_size"], ranks["ep_size"]), (8, 8, 8))
        self.assertEqual(ranks["cache_tokens_of_all"], 8 * ranks["cache_tokens"])
        self.assertGreater(ranks["cache_tokens_of_all"], 4_500_000)
        # This machine does not hold it.
        status, value = self.inspect()
        self.assertEqual((status, value["fit"]["runs"]), (1, False))
        self.assertIn("it would not run in this machine", value["problems"][0])
        status, value = self.inspect("--tp-size", 8, "--gpu-memory", 79.6)
        self.assertEqual((status, value["ranks"]["cache_tokens"]), (1, 0))
        self.assertTrue([problem for problem in value["problems"] if "leave no cache in" in problem])
        status, value = self.inspect("--tp-size", 3)
        self.assertEqual(status, 1)
        self.assertIn("--tp-size 3 does not divide num_attention_heads, 128", value["problems"])


def greedy(text, **options):
    return ("/generate", {"text": text, **options.pop("body", {}),
                          "sampling_params": {"temperature": 0, "max_new_tokens": 24, **options}})


def chat(**options):
    return ("/v1/chat/completions", {"model": "demo", "temperature": 0, "max_tokens": 48,
                                     "messages": [{"role": "user", "content": QUESTION}], **options})


ASKED = [
    chat(),
    chat(logprobs=True, top_logprobs=3),
    chat(n=3, temperature=0.8, seed=5),
    chat(stop=["."]),
    chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {
        "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}}}),
    greedy("The fox", ignore_eos=True),
    greedy("List", regex="[0-9]{4}, [a-z]{2,6}"),
    greedy("Tom has 3 apples. " * 12, body={"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2}),
    greedy("Tom has 3 apples. " * 12 + "How many?", frequency_penalty=0.7, min_new_tokens=8),
    ("/v1/completions", {"model": "demo", "prompt": "Ann has", "max_tokens": 8, "temperature": 0, "echo": True, "logprobs": 2}),
    ("/v1/score", {"query": QUESTION, "items": [" 19", " The fox"], "label_token_ids": [300, 301]}),
]
OWN = {"id", "created", "e2e_latency", "cached_tokens", "prompt_tokens_details", "request_id", "rid"}


def flat(value, path=""):
    """What an answer says, without what is another in every run: (path, value)."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() if key not in OWN and "time" not in key and "spec" not in key
                for leaf in flat(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [leaf for i, inner in enumerate(value) for leaf in flat(inner, f"{path}[{i}]")]
    return [(path, value)]


class EquivalenceTest(unittest.TestCase):
    @staticmethod
    def answers(*args):
        with ServingProcess(*SMALL, *FLOAT32, *args) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
            # Twice: the second time most of the prompts are cached, in one lane or another.
            asked = list(pool.map(lambda request: server.post(*request), ASKED + ASKED))
            info = server.get("/server_info")[1]
            return asked, info, server.get("/get_load")[1], server.get("/v1/loads")[1], server.metrics()

    def same(self, one, other, what):
        for i, ((status, a), (other_status, b)) in enumerate(zip(one, other, strict=True)):
            self.assertEqual((status, other_status), (200, 200), (what, i, a, b))
            for (path, x), (other_path, y) in zip(flat(a), flat(b), strict=True):
                self.assertEqual(path, other_path, (what, i))
                if isinstance(x, float):
                    self.assertAlmostEqual(x, y, delta=1e-3, msg=(what, i, path))
                else:
                    self.assertEqual(x, y, (what, i, path))

    def test_servers_of_ranks_and_lanes_answer_as_one_rank_does(self):
        one, _, load, _, _ = self.answers()
        self.assertEqual([each["dp_rank"] for each in load], [0])
        for args in (("--tp-size", 2), LANES, (*LANES, "--enable-ep-moe", *DRAFTS)):
            asked, info, load, loads, metrics = self.answers(*args)
            self.same(one, asked, args)
            lanes = 2 if "--dp-size" in args else 1
            self.assertEqual((info["tp_size"], info["dp_size"]), (2, lanes))
            self.assertEqual(info["internal_states"][0]["dp_size"], lanes)
            self.assertEqual(info["max_total_num_tokens"], lanes * 4096)
            self.assertEqual([each["dp_rank"] for each in load], list(range(lanes)))
            self.assertEqual((loads["dp_rank_count"], len(loads["loads"])), (lanes, lanes))
            of_lanes = [name for name in metrics if name.startswith("fathom:lane_num_running_requests")]
            self.assertEqual(len(of_lanes), lanes if lanes > 1 else 0, metrics)


class SimulationTest(unittest.TestCase):
    @staticmethod
    def answers(*args):
        asked = [{"text": f"{i % 7} fish and a fox. " * (1 + i), "sampling_params": {"temperature": 0, "max_new_tokens": 100}}
                 for i in range(24)]
        with ServingProcess("--engine", "sim", "--max-total-tokens", 8192, "--sim-step-us", 1000, "--max-running-requests", 32,
                            *args) as server, concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = [answer["text"] for _, answer in pool.map(lambda body: server.post("/generate", body), asked)]
            return answers, server.get("/server_info")[1], server.get("/get_load")[1], server.metrics()

    def test_eight_simulated_lanes_answer_as_one_and_show_what_each_has(self):
        one, *_ = self.answers()
        for size, lanes in ((8, 8), (8, 4), (2, 1)):
            flags = ("--enable-dp-attention", "--dp-size", lanes) if lanes > 1 else ()
            answers, info, load, metrics = self.answers("--tp-size", size, *flags)
            self.assertEqual(answers, one)
            self.assertEqual((info["tp_size"], info["dp_size"]), (size, lanes))
            self.assertEqual(info["max_total_num_tokens"], lanes * 8192)
            self.assertEqual([each["dp_rank"] for each in load], list(range(lanes)))
            self.assertEqual(len([name for name in metrics if name.startswith("fathom:lane_kv_used_tokens")]), lanes if lanes > 1 else 0)


class ServerTest(unittest.TestCase):
    def test_a_server_of_two_ranks_answers_constrains_aborts_and_drains(self):
        with ServingProcess(*SMALL, *FLOAT32, "--tp-size", 2, "--enable-ep-moe") as server:
            info = server.get("/server_info")[1]
            self.assertEqual((info["tp_size"], info["ep_size"], info["dp_size"]), (2, 2, 1))
            status, answer = server.post("/generate", {"text": "List", "sampling_params": {
                "temperature": 0, "max_new_tokens": 8, "regex": "[0-9]{4}"}})
            self.assertEqual(status, 200, answer)
            self.assertRegex(answer["text"], r"^[0-9]{4}$")
            long = {"text": "x", "rid": "long", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                aborted = pool.submit(server.post, "/generate", long)
                eventually(lambda: server.metrics()["sglang:num_running_reqs"] == 1, "the request to run")
                self.assertEqual(server.post("/abort_request", {"rid": "long"})[0], 200)
                self.assertEqual(aborted.result()[1]["meta_info"]["finish_reason"]["type"], "abort")
                # A request that runs when the server is told to stop is finished.
                draining = pool.submit(server.post, "/generate", {
                    "text": "x", "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}})
                eventually(lambda: server.metrics()["sglang:num_running_reqs"] == 1, "the request to run")
                server.process.terminate()
                self.assertEqual(draining.result()[1]["meta_info"]["completion_tokens"], 200)
            self.assertEqual(server.process.wait(PATIENCE_SECONDS), 0)
        ranks = server.log_lines("ranks")[0]
        self.assertEqual((ranks["tp_size"], ranks["ep_size"]), (2, 2))


def thread_of_rank(pid, rank):
    for thread in os.listdir(f"/proc/{pid}/task"):
        name = pathlib.Path(f"/proc/{pid}/task/{thread}/comm").read_text(encoding="utf-8").strip()
        if name == f"runner {rank}":
            return int(thread)
    raise AssertionError(f"no thread of rank {rank}")


@contextlib.contextmanager
def stopped(thread):
    """One thread of another process stands still, as under a debugger. For a process that ends meanwhile."""
    seize, interrupt, detach, all_threads = 0x4206, 0x4207, 17, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    if libc.ptrace(seize, thread, 0, 0) != 0:
        raise unittest.SkipTest(f"no thread may be traced here: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(interrupt, thread, 0, 0)
    os.waitpid(thread, all_threads)
    try:
        yield
        # The process is gone once whoever traced its thread has seen that end.
        os.waitpid(thread, all_threads)
    except BaseException:
        libc.ptrace(detach, thread, 0, 0)
        raise


def events_of_failed(server, body):
    """A stream that failed has no end."""
    connection, response = server.open("POST", "/generate", {**body, "stream": True})
    try:
        text = response.read()
    except http.client.IncompleteRead as error:
        text = error.partial
    connection.close()
    return events_of(text.decode())


DEVICE = os.environ.get("FATHOM_TEST_DEVICE", "cpu")
FAILURE = (r"^rank 0 of 2 in tp has waited \d+ ms in \w+ \(number \d+\) for rank 1 of 2 in tp, which stands still and whose "
           r"last is \w+ \(number \d+\) in step \d+: ")
if DEVICE == "cuda":
    FAILURE = r"^rank 0 of tp waited 1000 ms in \w+ for rank 1 in step \d+: "


class FailureTest(unittest.TestCase):
    def test_a_rank_that_stands_still_is_named_and_every_request_ends(self):
        endless = {"text": "x", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
        with ServingProcess("--device", DEVICE, "--max-total-tokens", 8192, "--max-running-requests", 2, *FLOAT32, "--tp-size", 2,
                            "--dist-timeout", 1) as server:
            self.assertEqual(server.get("/server_info")[1]["dist_timeout"], 1)
            with concurrent.futures.ThreadPoolExecutor(5) as pool:
                stream = pool.submit(events_of_failed, server, endless)
                eventually(lambda: server.metrics()["fathom:num_running_requests"] == 1, "the stream to run")
                answers = [pool.submit(server.post, "/generate", endless) for _ in range(4)]  # three of them wait
                eventually(lambda: server.metrics()["fathom:num_waiting_requests"] == 3, "requests to wait")
                eventually(lambda: server.metrics()["fathom:generation_tokens_total"] > 100, "tokens")
                begin = time.monotonic()
                with stopped(thread_of_rank(server.process.pid, 1)):
                    for answer in answers:
                        status, body = answer.result()
                        self.assertEqual((status, body["error"]["code"]), (503, "model_failed"))
                    self.assertEqual(stream.result()[-1]["error"]["code"], "model_failed")
                self.assertLess(time.monotonic() - begin, 30)
            self.assertEqual(server.process.wait(PATIENCE_SECONDS), 70)
        failures = server.log_lines("ranks have failed")
        self.assertEqual(len(failures), 1, server.log_text())
        self.assertRegex(failures[0]["what"], FAILURE)


if __name__ == "__main__":
    unittest.main()
