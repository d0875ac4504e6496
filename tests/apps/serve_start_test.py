"""How `fathom serve` starts: flags, settings, what it refuses, what it says while it loads."""
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
from serve_inputs import DEVICE, LONG, SIM, SMALL, native  # noqa: E402
from serving_process import (DEMO, PATIENCE_SECONDS, PROGRAM, ROOT, ServingProcess, eventually,  # noqa: E402
                             occupied_port, run_serve)


class StartTest(unittest.TestCase):
    def refused(self, status, part, *args):
        code, error = run_serve("--port", 0, *SIM, *args)
        self.assertEqual(code, status, error)
        lines = [line for line in error.splitlines() if line.startswith("fathom: ")]
        self.assertEqual(len(lines), 1, error)
        self.assertIn(part, lines[0])

    def test_another_address_needs_a_key_or_to_be_told_insecure(self):
        self.refused(1, "lets other machines in and no API key is set", "--host", "0.0.0.0")
        # It guards the admin routes only.
        self.refused(1, "no API key is set", "--host", "0.0.0.0", "--admin-api-key", "sk-admin-12345")
        with ServingProcess(*SIM, "--host", "0.0.0.0", "--insecure") as server:
            self.assertEqual(server.get("/readyz")[0], 200)
        with ServingProcess(*SIM, "--host", "0.0.0.0", "--api-key", "sk-12345678") as server:
            self.assertEqual(server.get("/v1/models")[0], 401)

    def test_what_cannot_be_used_is_one_clear_line(self):
        self.refused(2, "--nope", "--nope")
        self.refused(2, "--ssl-keyfile", "--ssl-certfile", "cert.pem")
        self.refused(2, "--schedule-policy", "--schedule-policy", "random")
        self.refused(1, "cannot use the API key file /gone: cannot be read", "--api-key-file", "/gone")
        self.refused(1, "cannot use the API key file /gone: cannot be read", "--admin-api-key-file", "/gone")
        self.refused(1, "8 to 512", "--api-key", "short")
        self.refused(1, "'a:80' must be a name or an address without a port", "--allowed-host", "a:80")
        self.refused(1, "'example.org' must be SCHEME://HOST", "--cors-origin", "example.org")
        self.refused(1, "cert.pem", "--ssl-certfile", "cert.pem", "--ssl-keyfile", "key.pem")
        listener, port = occupied_port()
        with listener:
            code, error = run_serve("--port", port, *SIM)
        self.assertEqual(code, 1)
        self.assertIn(f"cannot listen on 127.0.0.1:{port}: Address already in use", error)

    def test_what_is_no_regular_file_is_refused_and_not_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe, model = pathlib.Path(folder, "pipe"), pathlib.Path(folder, "model")
            os.mkfifo(pipe)
            good = str(DEMO / "config.json")
            for path, kind in ((pipe, "a pipe"), ("/dev/zero", "a device"), (folder, "a directory")):
                what = f"{path}: must be a regular file, is {kind}"
                self.refused(1, what, "--api-key-file", path)
                self.refused(1, what, "--admin-api-key-file", path)
                self.refused(1, what, "--ssl-certfile", path, "--ssl-keyfile", good)
            for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                         "chat_template.jinja"):
                for target in (pipe, "/dev/zero", folder):
                    shutil.rmtree(model, ignore_errors=True)
                    model.mkdir()
                    for file in DEMO.iterdir():
                        if file.name != name:
                            (model / file.name).symlink_to(file)
                    (model / name).symlink_to(target)
                    code, error = run_serve("--port", 0, *SIM, model=model)
                    self.assertEqual(code, 1, error)
                    line, = (line for line in error.splitlines() if line.startswith("fathom: "))
                    self.assertIn(f"{name}: must be a regular file", line)
                    done = subprocess.run([PROGRAM, "tokenize", "--model-path", model, "--chat", "--text", "Hi"], capture_output=True,
                                          text=True, timeout=PATIENCE_SECONDS, check=False)
                    if name != "generation_config.json":
                        self.assertEqual(done.returncode, 1, done.stderr)
                        self.assertIn("must be a regular file", done.stderr)

    def test_speculation_is_checked_and_told(self):
        self.refused(1, "--simulate-accept-length does nothing without", "--simulate-accept-length", 2)
        nextn = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", 3]
        self.refused(1, "needs --speculative-eagle-topk 1, is 2", *nextn, "--speculative-eagle-topk", 2,
                     "--simulate-accept-length", 2)
        self.refused(1, "needs --engine model", *nextn, "--speculative-draft-model-path", DEMO)
        self.refused(1, "needs --engine model", *nextn, "--speculative-draft-model-quantization", "fp8")
        with ServingProcess(*SIM, *nextn, "--simulate-accept-length", 2.5, "--no-speculative-adaptive") as server:
            status, answer = server.post("/generate", native(2000))
            self.assertEqual(status, 200)
            meta = answer["meta_info"]
            self.assertEqual(meta["completion_tokens"], 2000)
            self.assertAlmostEqual(meta["spec_accept_length"], 2.5, delta=0.15)
            self.assertEqual(len(meta["spec_accept_histogram"]), 4)
            self.assertRegex(server.get("/metrics")[1], r"\nfathom:spec_accept_simulated\{[^}]*\} 1\n")
            info = server.get("/server_info")[1]
            self.assertEqual([info[key] for key in ("speculative_algorithm", "speculative_num_steps",
                                                    "speculative_eagle_topk", "speculative_num_draft_tokens",
                                                    "speculative_adaptive", "simulate_accept_length")],
                             ["NEXTN", 3, 1, 4, False, 2.5])
            self.assertAlmostEqual(info["internal_states"][0]["avg_spec_accept_length"], 2.5, delta=0.15)
            self.assertEqual(server.log_lines("settings")[0]["speculative_num_draft_tokens"], "4")

    def compute_prompts_beside_answers(self, server, is_seen):
        """Prompts of 2,000 tokens and more, until the metrics show it: which answers each met depends on the machine."""
        is_done = threading.Event()

        def answer_on():
            while not is_done.is_set():
                server.post("/generate", native(500))

        streams = [threading.Thread(target=answer_on) for _ in range(2)]
        for stream in streams:
            stream.start()
        number = itertools.count()

        def is_seen_after_a_prompt():
            status, answer = server.post("/generate", native(2, f"{next(number)}. {LONG * 12}"))
            self.assertEqual(status, 200)
            self.assertGreater(answer["meta_info"]["prompt_tokens"], 2000)
            return is_seen(server.metrics())

        try:
            eventually(is_seen_after_a_prompt, "steps beside answers are measured")
            return server.metrics()
        finally:
            is_done.set()
            for stream in streams:
                stream.join()

    def test_a_bound_on_steps_cuts_prompts_beside_answers_and_is_told(self):
        self.refused(2, "--max-step-ms", "--max-step-ms", -1)
        with ServingProcess(*SIM) as server:
            self.assertEqual(server.get("/server_info")[1]["max_step_ms"], 0)
            self.assertEqual(server.metrics()["fathom:max_step_seconds"], 0)
        for flags, bound in ((["--max-step-ms", 4], 4), ([], 50 if DEVICE == "cuda" else 100)):
            with ServingProcess(*SMALL, *(["--device", DEVICE] if DEVICE else []), *flags) as server:
                self.assertEqual(server.get("/server_info")[1]["max_step_ms"], bound)
                metrics = self.compute_prompts_beside_answers(
                    server, lambda now: now["fathom:longest_step_seconds"] > 0 and
                    (bound > 4 or now["fathom:cut_steps_total"] > 0))
            self.assertEqual(metrics["fathom:max_step_seconds"], bound / 1e3)
            self.assertLess(metrics["fathom:predicted_step_seconds"], 1)

    def test_a_model_that_drafts_answers_as_one_that_does_not(self):
        small = ["--cpu-threads", 2, "--max-total-tokens", 8192, "--chunked-prefill-size", 256, "--deterministic",
                 "--max-running-requests", 8]
        prompt = "Question: Anna has 3 apples and buys 5 more. How many apples does Anna have?\nAnswer:"
        requests = [
            ("/v1/completions", {"prompt": prompt, "max_tokens": 40, "temperature": 0, "logprobs": 2}),
            ("/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 1, "seed": 5, "n": 3,
                                 "frequency_penalty": 0.4}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 30,
                                      "temperature": 0, "stop": ["help"]}),
            ("/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 0.8, "seed": 6,
                                 "regex": "[A-Z][a-z ]{2,20}(, [a-z]+)*\\."}),
        ]

        def answers(*flags):
            with ServingProcess(*small, *flags) as server:
                told = []
                for path, body in requests:
                    status, answer = server.post(path, {"model": "default", **body})
                    self.assertEqual(status, 200, answer)
                    told.append(sorted(answer["choices"], key=lambda choice: choice["index"]))
                return told, server.get("/server_info")[1]["internal_states"][0]

        plain, state = answers()
        self.assertNotIn("spec_verify_ct", state)
        self.assertEqual(len(plain[1]), 3)
        nextn = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", 2, "--no-speculative-adaptive"]
        for tree in ([], ["--speculative-eagle-topk", 2, "--speculative-num-draft-tokens", 5]):
            with self.subTest(tree=tree):
                drafted, state = answers(*nextn, *tree)
                self.assertEqual(drafted, plain)
                self.assertGreater(state["spec_num_accepted_drafts"], 10)

    # That the manual has each: tests/apps/serve_flags_test.cc.
    def test_every_flag_of_the_help_is_in_the_settings(self):
        text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        flags = set(re.findall(r"^ +(?:-\w,)?--([a-z][a-z-]*)", text, re.MULTILINE)) - {"help"}
        self.assertGreater(len(flags), 40)
        with ServingProcess(*SIM) as server:
            settings = server.log_lines("settings")
        self.assertEqual(len(settings), 1)
        self.assertEqual({flag for flag in flags if flag.replace("-", "_") not in settings[0]}, set())

    def test_deploy_files_use_flags_that_exist(self):
        text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        for name in ("Dockerfile", "fathom.service", "kubernetes.yaml"):
            lines = (ROOT / "deploy" / name).read_text(encoding="utf-8").splitlines()
            ours = [line for line in lines if re.search(r"fathom serve|\"fathom\", \"serve\"|FATHOM_FLAGS=|^ +- --", line)]
            self.assertTrue(ours, name)
            for flag in re.findall(r"--[a-z][a-z-]+", "\n".join(ours)):
                self.assertRegex(text, rf"(?m)^ +(?:-\w,)?{flag}\b", name)

    def test_code_in_a_checkpoint_is_not_run_and_the_log_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in DEMO.iterdir():
                pathlib.Path(folder, file.name).symlink_to(file)
            config = json.loads((DEMO / "config.json").read_text())
            config["auto_map"] = {"AutoConfig": "evil.Config"}
            pathlib.Path(folder, "config.json").unlink()
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            pathlib.Path(folder, "evil.py").write_text("raise SystemExit('ran')\n")
            with ServingProcess(*SIM, model=folder) as server:
                self.assertEqual(server.post("/generate", native(1))[0], 200)
                warnings = [line for line in server.log_lines() if (line["level"], line["module"]) == ("warning", "config")]
        self.assertEqual([line["key"] for line in warnings], ["auto_map"])

    def test_readiness_says_why_until_the_weights_are_there(self):
        # A start may be over before it can be asked: what an answer says is checked, the order by the log. What
        # a server that loads answers is asked in tests/serve/api_server_test.cc too.
        server = ServingProcess("--load-format", "dummy", "--cpu-threads", 1, "--max-total-tokens", 16384)
        seen = []
        try:
            server.wait_listening()

            def ready():
                self.assertEqual(server.get("/livez")[0], 200)
                status, answer = server.get("/readyz")
                seen.append((status, answer["status"]))
                if status == 503:
                    self.assertEqual(set(answer), {"status", "phase", "progress", "seconds_left"})
                    self.assertTrue(0 <= answer["progress"] <= 1)
                    self.assertIn(server.get("/v1/models")[0], (200, 503))
                return status == 200
            eventually(ready, "readiness")
        finally:
            self.assertEqual(server.end(), 0)
        self.assertEqual(set(seen[:-1]) - {(503, "loading")}, set())
        self.assertEqual(seen[-1], (200, "ready"))
        events = [line["event"] for line in server.log_lines()]
        order = [events.index(event) for event in ("listening", "loading weights", "ready")]
        self.assertEqual(order, sorted(order))


if __name__ == "__main__":
    skipping.main()
