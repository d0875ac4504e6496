"""`fathom-bench` against a real `fathom serve` on the demo model, and what each of the two programs is made of."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from serving import Serving  # noqa: E402

DEMO = ROOT / "models" / "demo"
KEY = "bench-key"
SERVER = pathlib.Path(os.environ["FATHOM_PROGRAM"])
PROGRAM = SERVER.with_name("fathom-bench")


def bench(*args, key=KEY):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True,
                          check=False, timeout=900, env={**os.environ, "FATHOM_API_KEY": key})


class AgainstAServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", KEY)
        cls.addClassCleanup(cls.server.close)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def serving(self, *args):
        """The JSON line of a run of 6 requests, whose report is looked at."""
        path = pathlib.Path(self.folder.name) / f"{self.id()}.jsonl"
        path.unlink(missing_ok=True)
        done = bench("serving", "--base-url", self.server.url + "/", "--num-prompts", 6, "--random-input-len", 24,
                     "--random-output-len", 8, "--random-range-ratio", 1, "--output-file", path, *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"Successful requests: +6 ")
        return json.loads(path.read_text())

    def test_each_backend_gets_every_token(self):
        for backend in ("fathom", "sglang", "sglang-oai", "sglang-oai-chat"):
            with self.subTest(backend=backend):
                line = self.serving("--backend", backend, "--max-concurrency", 2)
                self.assertEqual((line["completed"], line["failed"]), (6, 0))
                self.assertEqual(line["total_input_tokens"], 6 * 24)
                self.assertEqual(line["total_output_tokens"], 6 * 8)
                self.assertEqual(line["max_concurrent_requests"], 2)
                self.assertGreater(line["mean_ttft_ms"], 0)
                self.assertLessEqual(line["mean_ttft_ms"], line["mean_e2e_latency_ms"])
                self.assertEqual(line["server_info"]["status"], "ready")

    def test_a_terminal_shows_how_far_it_is(self):
        terminal, other_end = os.openpty()
        run = subprocess.run([PROGRAM, "serving", "--base-url", self.server.url, "--num-prompts", "40",
                              "--random-input-len", "8", "--random-output-len", "256", "--max-concurrency", "2"],
                             stdout=subprocess.PIPE, stderr=other_end, check=True, timeout=900,
                             env={**os.environ, "FATHOM_API_KEY": KEY})
        os.close(other_end)
        shown = os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        self.assertRegex(shown, r"\r\d+ of 40 requests, [\d.]+(?:/s| s each), about \d+ s left")
        self.assertNotIn("of 40 requests", run.stdout.decode())

    def test_a_speculating_server_is_asked_what_its_drafts_did(self):
        line = self.serving()
        self.assertEqual([line[key] for key in ("accept_length", "accept_rate", "spec_verify_ct", "accept_simulated")],
                         [None] * 4)
        server = Serving("--engine", "sim", "--speculative-algorithm", "NEXTN",
                         "--speculative-num-steps", "3", "--simulate-accept-length", "3", "--no-speculative-adaptive")
        self.addCleanup(server.close)
        done = bench("serving", "--base-url", server.url, "--num-prompts", 4, "--random-input-len", 16,
                     "--random-output-len", 400, "--random-range-ratio", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        length = re.search(r"Accept length: +(\d\.\d+)", done.stdout)
        self.assertIsNotNone(length, done.stdout)
        self.assertAlmostEqual(float(length[1]), 3, delta=0.25)
        self.assertRegex(done.stdout, r"Verify steps: +\d+")
        self.assertRegex(done.stdout, r"Acceptance: +simulated")

    def test_shared_prefixes_come_from_the_cache_and_are_drawn(self):
        plot = pathlib.Path(self.folder.name) / "shared.svg"
        line = self.serving("--dataset-name", "generated-shared-prefix", "--gsp-num-groups", 2,
                            "--gsp-prompts-per-group", 3, "--gsp-system-prompt-len", 128, "--gsp-question-len", 8,
                            "--gsp-output-len", 4, "--max-concurrency", 1, "--flush-cache", "--output-details",
                            "--plot", plot, "--request-rate", 200)
        self.assertEqual(line["total_input_tokens"], 6 * 136)
        self.assertEqual(len(line["ttfts"]), 6)
        texts = [node.text for node in xml.etree.ElementTree.parse(plot).iter() if node.tag.endswith("text")]
        self.assertIn("Time to first token", texts)

    def test_failed_requests_are_counted_with_their_reason(self):
        done = bench("serving", "--base-url", self.server.url, "--num-prompts", 3, "--random-input-len", 16,
                     "--random-output-len", 200000, "--random-range-ratio", 1, "--warmup-requests", 0)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"Failed requests: +3 ")
        self.assertIn("  3 x HTTP 400: ", done.stdout)

    def test_one_failed_request_fails_the_run(self):
        server = Serving("--context-length", "64")
        self.addCleanup(server.close)
        # Prompts and answers of 1 to 48 tokens each: some are longer than the context together, others are not.
        done = bench("serving", "--base-url", server.url, "--num-prompts", 24, "--random-input-len", 48,
                     "--random-output-len", 48, "--random-range-ratio", 0, "--warmup-requests", 0)
        self.assertRegex(done.stdout, r"Successful requests: +[1-9]")
        self.assertRegex(done.stdout, r"Failed requests: +[1-9]")
        self.assertEqual(done.returncode, 1)

    def test_a_refusal_ends_the_wait_at_once(self):
        done = bench("serving", "--base-url", self.server.url, "--num-prompts", 1, key="wrong")
        self.assertEqual(done.returncode, 1)
        self.assertIn("HTTP 401", done.stderr)
        done = bench("serving", "--base-url", "localhost:1", "--num-prompts", 1)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "fathom-bench: --base-url: the URL 'localhost:1' must begin with http:// or "
                         "https://\n")
        done = bench("serving", "--base-url", self.server.url, "--request-rate", "fast")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn('--request-rate is "fast"', done.stderr)

    def test_help_has_groups_defaults_and_an_example(self):
        for name in ("serving", "gsm8k"):
            text = bench(name, "--help").stdout
            self.assertIn("\nServer:\n", text)
            self.assertIn("(default: ", text)
            self.assertIn("Examples:\n  fathom-bench " + name, text)
            self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)

    def test_gsm8k_prints_what_sglangs_does(self):
        path = pathlib.Path(self.folder.name) / "gsm8k.jsonl"
        done = bench("gsm8k", "--base-url", self.server.url, "--data", DEMO / "eval.json", "--shots",
                     DEMO / "shots.json", "--num-shots", 1, "--num-questions", 6, "--parallel", 4, "--result-file", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^Accuracy: \d\.\d{3}\nInvalid: \d\.\d{3}\nLatency: [\d.]+ s\n"
                                      r"Output throughput: [\d.]+ token/s\n$")
        line = json.loads(path.read_text())
        self.assertEqual(line["num_requests"], 6)
        self.assertGreaterEqual(line["accuracy"], 0.5)  # one shot instead of five, yet most answers are right
        self.assertGreater(line["output_throughput"], 0)


class ProgramsTest(unittest.TestCase):
    def test_the_commands_are_found_from_both_programs(self):
        self.assertRegex(bench("--version").stdout, r"^fathom-bench \d+\.\d+\.\d+ \(commit \w+( with changes)?\)\n$")
        text = bench("--help").stdout
        for name in ("serving", "gsm8k"):
            self.assertIn(f"\n  {name} ", text)
            old = subprocess.run([SERVER, "bench", name, "--help"], capture_output=True, text=True, check=False)
            self.assertEqual((old.returncode, old.stdout), (2, ""))
            self.assertEqual(old.stderr, f"fathom: bench {name} measures a running server and is a command of "
                                         f"fathom-bench\nTry: fathom-bench {name} --help\n")
        done = bench("frob")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, 'fathom-bench: no subcommand "frob"\nTry: fathom-bench --help\n')

    def test_only_the_bench_has_the_benches_and_only_the_server_has_the_engine(self):
        def functions(program):
            done = subprocess.run(["nm", "--demangle", program], capture_output=True, text=True, check=True)
            return done.stdout

        server, outside = functions(SERVER), functions(PROGRAM)
        # The client is in both: the server sends spans with it.
        for name in ("fathom::apps::HttpTarget::", "fathom::apps::LoadRequest"):
            self.assertTrue(name in outside, name)
            self.assertFalse(name in server, name)
        for name in ("fathom::engine::", "fathom::runner::", "fathom::serve::"):
            self.assertTrue(name in server, name)
            self.assertFalse(name in outside, name)


if __name__ == "__main__":
    unittest.main()
