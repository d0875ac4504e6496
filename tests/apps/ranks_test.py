"""Several ranks from the command line: the tokens of one, right answers in FP8, and what is refused in a sentence."""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from serving_process import DEMO, PATIENCE_SECONDS, PROGRAM, ServingProcess, environment, eventually  # noqa: E402

FLOAT32 = ("--dequantize", "--dtype", "float32")
SMALL = ("--device", "cpu", "--max-total-tokens", 4096, "--max-running-requests", 8, "--chunked-prefill-size", 128)
QUESTION = "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"
DRAFTS = ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", 3)


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
                     ("--tp-size", 2, "--enable-ep-moe", "--ep-size", 2, *DRAFTS)):
            self.assertEqual(generate(*FLOAT32, *args), one, args)

    def test_fp8_answers_word_problems_on_any_number_of_ranks(self):
        for args in (("--tp-size", 2), ("--tp-size", 4, "--enable-ep-moe"), ("--tp-size", 2, *DRAFTS)):
            done = run(("eval", "gsm8k"), "--data", DEMO / "eval.json", "--shots", DEMO / "shots.json", "--num-questions",
                       8, "--parallel", 8, "--device", "cpu", "--min-accuracy", 1, *args)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


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
        # A head's 192 rows on each of eight ranks are a block of scales and a half.
        self.refused("q_b_proj.weight: dimension 0 is 1536, of which each of 8 ranks would hold 192, but FP8 parts are "
                     "multiples of 128 or divide it: they may not straddle blocks of scales (--dequantize does without "
                     "them)", "--tp-size", 8)

    def test_a_simulation_has_no_ranks(self):
        done = run(("serve",), "--engine", "sim", "--tp-size", 2, "--port", 0)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--tp-size 2 needs --engine model", done.stderr)

    def test_memory_is_shared_by_the_ranks_of_a_host(self):
        for size, shared in ((1, False), (4, True)):
            done = run(("generate",), "--prompt", "x", "--max-new-tokens", 1, *SMALL, "--tp-size", size, *FLOAT32)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("shared_by=4" in done.stderr, shared, done.stderr)
            self.assertEqual("ranks=4" in done.stderr, shared, done.stderr)
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
        # The configuration has no tokenizer, which is a problem of its own.
        _, value = self.inspect("--tp-size", 8, "--enable-ep-moe", "--gpu-memory", 140.4)
        ranks = value["ranks"]
        self.assertEqual((ranks["tp_size"], ranks["ep_size"]), (8, 8))
        self.assertEqual(round(ranks["weight_bytes"] / 1e9, 1), 85.4)
        self.assertGreater(ranks["cache_tokens"], 700_000)
        self.assertFalse([problem for problem in value["problems"] if "no cache" in problem])
        status, value = self.inspect("--tp-size", 8, "--gpu-memory", 79.6)
        self.assertEqual((status, value["ranks"]["cache_tokens"]), (1, 0))
        self.assertTrue([problem for problem in value["problems"] if "leave no cache in --gpu-memory" in problem])
        status, value = self.inspect("--tp-size", 3)
        self.assertEqual(status, 1)
        self.assertIn("--tp-size 3 does not divide num_attention_heads, 128", value["problems"])


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


if __name__ == "__main__":
    unittest.main()
