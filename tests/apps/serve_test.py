"""`fathom serve` as an operator meets it: flags, keys, TLS, salts, admin routes, metrics, logs, exact counts."""
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
from serving_process import (DEMO, PATIENCE_SECONDS, PROGRAM, ROOT, ServingProcess, eventually, events_of,  # noqa: E402
                             in_background, occupied_port, run_serve)

SIM = ["--engine", "sim", "--cpu-threads", 2, "--max-total-tokens", 16384]
# What runs where a test needs an engine that takes its time: with FATHOM_TEST_DEVICE=cuda in the environment, the demo
# model on the GPU.
DEVICE = os.environ.get("FATHOM_TEST_DEVICE")
SMALL = ["--max-total-tokens", 8192, "--chunked-prefill-size", 256, "--max-running-requests", 16, "--cpu-threads", 2]


def slow_engine(step_us):
    if DEVICE:
        return ["--device", DEVICE, "--max-total-tokens", 65536]
    return [*SIM, "--sim-step-us", step_us]


def native(max_new_tokens, text="How many apples are left?", **fields):
    return {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True},
            **fields}


def make_certificate(cert, key):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)


# Longer than a block of the cache, so that a second request finds some of it.
LONG = "One fish, two fish, and then a fox. " * 20


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

    def test_every_flag_of_the_help_is_in_the_settings_and_in_the_manual(self):
        text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        flags = set(re.findall(r"^ +(?:-\w,)?--([a-z][a-z-]*)", text, re.MULTILINE)) - {"help"}
        self.assertGreater(len(flags), 40)
        with ServingProcess(*SIM) as server:
            settings = server.log_lines("settings")
        self.assertEqual(len(settings), 1)
        self.assertEqual({flag for flag in flags if flag.replace("-", "_") not in settings[0]}, set())
        manual = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
        self.assertEqual({flag for flag in flags if f"`--{flag}" not in manual}, set())

    def test_deploy_files_use_flags_that_exist(self):
        text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        for name in ("Dockerfile", "fathom.service", "kubernetes.yaml"):
            lines = (ROOT / "deploy" / name).read_text(encoding="utf-8").splitlines()
            ours = [line for line in lines if re.search(r"fathom serve|\"fathom\", \"serve\"|FATHOM_FLAGS=|^ +- --", line)]
            self.assertTrue(ours, name)
            for flag in re.findall(r"--[a-z][a-z-]+", "\n".join(ours)):
                self.assertRegex(text, rf"(?m)^ +{flag}\b", name)

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
        # A large step to measure keeps the start busy for a second: long enough to ask.
        server = ServingProcess("--load-format", "dummy", "--cpu-threads", 1, "--max-total-tokens", 16384,
                                "--chunked-prefill-size", 4096)
        seen = []
        try:
            server.wait_listening()

            def ready():
                self.assertEqual(server.get("/livez")[0], 200)
                status, answer = server.get("/readyz")
                seen.append((status, answer["status"]))
                if status == 503:
                    self.assertEqual(set(answer), {"status", "phase", "progress"})
                    self.assertTrue(0 <= answer["progress"] <= 1)
                    self.assertIn(server.get("/v1/models")[0], (200, 503))
                return status == 200
            eventually(ready, "readiness")
        finally:
            self.assertEqual(server.end(), 0)
        self.assertEqual(seen[0], (503, "loading"))
        self.assertEqual(seen[-1], (200, "ready"))


class AccessTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("openssl"), skipping.because(
        "no openssl to make a certificate with", "tools/install_packages.sh test, or install openssl"))
    def test_tls_serves_a_client_that_verifies_and_no_plain_one(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder, "cert.pem"), pathlib.Path(folder, "key.pem")
            make_certificate(cert, key)
            with ServingProcess(*SIM, "--ssl-certfile", cert, "--ssl-keyfile", key, tls=str(cert)) as server:
                status, answer = server.post("/generate", native(5))
                self.assertEqual((status, len(answer["output_ids"])), (200, 5))
                self.assertEqual(server.read_stream(native(5))[-1], "[DONE]")
                server.tls = None
                with self.assertRaises(OSError):
                    server.get("/livez")

    def test_keys_are_read_again_on_sighup_and_stay_when_the_file_is_bad(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "keys")
            file.write_text("# tenants\nann:sk-ann-12345\n")
            with ServingProcess(*SIM, "--api-key-file", file, env={"FATHOM_API_KEY": "sk-env-12345"}) as server:
                def status(key):
                    return server.get("/v1/models", key=key)[0]

                def reload(event):
                    num_before = len(server.log_lines(event))
                    server.process.send_signal(signal.SIGHUP)
                    eventually(lambda: len(server.log_lines(event)) > num_before, f"the log to say: {event}")
                self.assertEqual([status(k) for k in (None, "sk-ann-12345", "sk-env-12345", "sk-bob-12345")],
                                 [401, 200, 200, 401])
                file.write_text("bob:sk-bob-12345\n")
                reload("keys read again")
                eventually(lambda: status("sk-bob-12345") == 200, "the new key to be let in")
                eventually(lambda: status("sk-ann-12345") == 401, "the old key to be refused")
                file.write_text("x\n")
                reload("keys not read again, the old ones stay")
                self.assertEqual(status("sk-bob-12345"), 200)
                self.assertEqual(server.get("/livez")[0], 200)
                log = server.log_text()
        for secret in ("sk-ann-12345", "sk-bob-12345", "sk-env-12345"):
            self.assertNotIn(secret, log)

    @unittest.skipUnless(shutil.which("openssl"), skipping.because(
        "no openssl to make a certificate with", "tools/install_packages.sh test, or install openssl"))
    def test_a_certificate_is_read_again_on_sighup_and_stays_when_the_pair_is_bad(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder, "cert.pem"), pathlib.Path(folder, "key.pem")
            make_certificate(cert, key)
            with ServingProcess(*SIM, "--ssl-certfile", cert, "--ssl-keyfile", key, tls=str(cert)) as server:
                def shown():
                    return ssl.get_server_certificate(("127.0.0.1", server.port))

                def reload(event):
                    num_before = len(server.log_lines(event))
                    server.process.send_signal(signal.SIGHUP)
                    eventually(lambda: len(server.log_lines(event)) > num_before, f"the log to say: {event}")
                first = shown()
                kept = server.connection()
                kept.request("GET", "/livez")
                self.assertEqual(kept.getresponse().read(), b'{"status":"alive"}')
                make_certificate(cert, key)
                self.assertEqual(shown(), first)
                reload("TLS certificate read again")
                renewed = shown()
                self.assertEqual(renewed, cert.read_text())
                self.assertNotEqual(renewed, first)
                self.assertEqual(server.get("/livez")[0], 200)  # verified with the new one
                kept.request("GET", "/livez")
                self.assertEqual(kept.getresponse().status, 200)
                kept.close()
                make_certificate(cert, pathlib.Path(folder, "another.pem"))
                reload("TLS certificate not read again, the old one stays")
                self.assertIn("does not belong to", server.log_lines("TLS certificate not read again, the old one stays")[0]["why"])
                self.assertEqual(shown(), renewed)

    def test_admin_routes_ask_for_the_admin_key_where_there_is_one(self):
        with ServingProcess(*SIM, "--api-key", "web:sk-web-12345", "--admin-api-key", "ops:sk-ops-12345") as server:
            for path in ("/flush_cache", "/abort_request", "/start_profile", "/stop_profile"):
                self.assertEqual(server.post(path)[0], 401, path)
                self.assertEqual(server.post(path, key="sk-web-12345")[0], 401, path)
            self.assertEqual(server.post("/flush_cache", key="sk-ops-12345")[0], 200)
            self.assertEqual(server.post("/abort_request", {"rid": "none"}, key="sk-ops-12345")[0], 200)
            self.assertEqual(server.post("/generate", native(1), key="sk-web-12345")[0], 200)

    def test_hosts_and_origins_are_those_of_the_flags(self):
        with ServingProcess(*SIM, "--allowed-host", "a.example", "--allowed-host", "b.example",
                            "--cors-origin", "https://app.example", "--cors-origin", "http://localhost:5173") as server:
            for host, status in (("a.example", 200), ("b.example:80", 200), ("localhost", 200), ("c.example", 403)):
                self.assertEqual(server.get("/v1/models", headers={"Host": host})[0], status, host)
            for origin, status in (("https://app.example", 200), ("http://localhost:5173", 200), ("null", 403),
                                   (f"http://127.0.0.1:{server.port}", 200), ("http://127.0.0.1:1", 403)):
                self.assertEqual(server.post("/generate", native(1), headers={"Origin": origin})[0], status, origin)
            for path in ("/flush_cache", "/start_profile", "/stop_profile"):
                answer = server.get(path, headers={"Sec-Fetch-Site": "none"})
                self.assertEqual((answer[0], answer[1]["error"]["code"]), (403, "post_needed"), path)
            self.assertEqual(server.get("/flush_cache")[0], 200)
            info = server.get("/server_info")[1]
            self.assertEqual(info["allowed_host"], ["a.example", "b.example"])
            self.assertEqual(info["cors_origin"], ["https://app.example", "http://localhost:5173"])

    def test_tenants_share_no_cached_prefix(self):
        with ServingProcess(*SIM, "--api-key", "ann:sk-ann-12345", "--api-key", "bob:sk-bob-12345") as server:
            def cached(key, **fields):
                status, answer = server.post("/generate", native(2, LONG, **fields), key=key)
                self.assertEqual(status, 200, answer)
                return answer["meta_info"]["cached_tokens"]
            self.assertEqual(cached("sk-ann-12345"), 0)
            self.assertGreaterEqual(cached("sk-ann-12345"), 64)
            self.assertEqual(cached("sk-bob-12345"), 0)
            self.assertGreaterEqual(cached("sk-bob-12345"), 64)
            self.assertEqual(cached("sk-ann-12345", cache_salt="a"), 0)
            self.assertGreaterEqual(cached("sk-ann-12345", cache_salt="a"), 64)
            self.assertEqual(cached("sk-bob-12345", cache_salt="a"), 0)


class LimitTest(unittest.TestCase):
    def crowd(self, server, num):
        """That many connections that say nothing."""
        sockets = []
        for _ in range(num):
            sockets.append(socket.create_connection(("127.0.0.1", server.port)))
            self.addCleanup(sockets[-1].close)
        return sockets

    def assert_probes(self, server):
        for path in ("/livez", "/readyz", "/health"):
            self.assertEqual(server.get(path)[0], 200, path)

    def test_probes_and_new_clients_get_in_past_idle_connections(self):
        with ServingProcess(*SIM, "--max-connections", 50) as server:
            idle = self.crowd(server, 120)
            self.assert_probes(server)
            self.assertEqual(server.post("/generate", native(2))[0], 200)
            self.assertGreaterEqual(server.metrics()["fathom:closed_idle_connections_total"], 70)
            self.assertEqual(server.metrics()["fathom:http_rejected_total{reason=overloaded}"], 0)
            self.assertEqual(idle[0].recv(1), b"")  # the oldest gave way

    def test_probes_get_in_past_busy_connections_and_nothing_else_does(self):
        with ServingProcess(*slow_engine(5000), "--max-connections", 4, key="sk-12345678",
                            env={"FATHOM_API_KEY": "sk-12345678"}) as server:
            streams = [server.open("POST", "/generate", native(5000, stream=True)) for _ in range(4)]
            for _, response in streams:
                self.assertTrue(response.readline())
            self.crowd(server, 100)
            self.assert_probes(server)
            self.assertEqual(server.get("/readyz", key="sk-12345678")[1]["running"], 4)
            for path in ("/metrics", "/v1/models", "/health_generate"):
                status, answer = server.get(path)
                self.assertEqual((status, answer["error"]["code"]), (503, "too_many_connections"), path)
            server.key = None
            self.assertEqual(server.get("/health")[0], 401)
            for connection, response in streams:
                response.close()
                connection.close()

    def test_a_low_limit_on_open_files_bounds_the_connections_and_leaves_the_probes_alone(self):
        def few_files():
            resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
        with ServingProcess(*SIM, before_start=few_files) as server:
            self.crowd(server, 500)
            self.assert_probes(server)
            info = server.get("/server_info")[1]
            self.assertLess(info["max_connections"], 400)
            warnings = server.log_lines("the limit on open files is below --max-connections")
            self.assertEqual([line["max_connections"] for line in warnings], [info["max_connections"]])

    def test_an_address_may_have_a_limit_of_its_own(self):
        with ServingProcess(*slow_engine(5000), "--max-connections-per-address", 2) as server:
            streams = [server.open("POST", "/generate", native(5000, stream=True)) for _ in range(2)]
            for _, response in streams:
                self.assertTrue(response.readline())
            status, answer = server.get("/v1/models")
            self.assertEqual((status, answer["error"]["code"]), (503, "too_many_connections_from_address"))
            self.assert_probes(server)
            for connection, response in streams:
                response.close()
                connection.close()


class OperatorTest(unittest.TestCase):
    """One server with steps of 5 ms, or of the demo model on a GPU; what is read of its counters is read as differences."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = ServingProcess(*slow_engine(5000), "--profile-dir", cls.folder.name,
                                    "--served-model-name", "first", "--served-model-name", "second").__enter__()

    @classmethod
    def tearDownClass(cls):
        status = cls.server.end()
        cls.folder.cleanup()
        assert status == 0, cls.server.log_text()

    def running(self):
        return self.server.get("/readyz")[1]["running"]

    def idle(self):
        eventually(lambda: self.running() == 0, "the engine to be idle")

    def test_models_are_the_served_names_and_the_path_is_an_alias(self):
        listed = self.server.get("/v1/models")[1]["data"]
        self.assertEqual([model["id"] for model in listed], ["first", "second"])
        self.assertEqual(self.server.get("/v1/models/second")[1]["id"], "second")
        self.assertEqual(self.server.get("/v1/models/third")[0], 404)
        for name, status in (("first", 200), ("second", 200), (str(DEMO), 200), ("default", 200), ("third", 404)):
            body = {"model": name, "prompt": "Hi", "max_tokens": 1}
            self.assertEqual(self.server.post("/v1/completions", body)[0], status, name)

    def test_a_flush_is_refused_while_a_request_runs_and_an_abort_ends_it(self):
        waiting = in_background(lambda: self.server.read_stream(native(5000, rid="long-one")))
        eventually(lambda: self.running() == 1, "the request to run")
        self.assertEqual(self.server.post("/flush_cache")[0], 400)
        self.assertEqual(self.server.post("/abort_request", {"rid": "long-one"})[0], 200)
        events = waiting()
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[-2]["meta_info"]["finish_reason"]["type"], "abort")
        self.assertEqual(events[-2]["meta_info"]["completion_tokens"], len(events[-2]["output_ids"]))
        self.idle()
        self.assertEqual(self.server.post("/flush_cache")[0], 200)

    def test_abort_all_ends_every_stream(self):
        waiting = [in_background(lambda: self.server.read_stream(native(5000))) for _ in range(3)]
        waiting.append(in_background(lambda: self.server.post("/generate", native(5000))))
        eventually(lambda: self.running() == 4, "four requests to run")
        self.assertEqual(self.server.post("/abort_request", {"abort_all": True})[0], 200)
        ends = [wait()[-2] for wait in waiting[:3]] + [waiting[3]()[1]]
        self.assertEqual([end["meta_info"]["finish_reason"]["type"] for end in ends], ["abort"] * 4)
        self.idle()

    def test_a_profile_is_a_chrome_trace_with_the_spans_of_a_step(self):
        self.assertEqual(self.server.post("/start_profile")[0], 200)
        self.assertEqual(self.server.post("/generate", native(5))[0], 200)
        self.assertEqual(self.server.post("/stop_profile")[0], 200)
        files = list(pathlib.Path(self.folder.name).glob("*.trace.json"))
        self.assertEqual(len(files), 1)
        events = json.loads(files[0].read_text())["traceEvents"]
        spans = {f'{event.get("cat", "")}/{event["name"]}' for event in events}
        self.assertLessEqual({"sched/plan", "runner/submit", "runner/wait", "engine/commit"}, spans)
        self.assertTrue(all(event["dur"] >= 0 for event in events if event["ph"] == "X"))
        # Prompt and four decodes.
        with_kernels = {event["args"]["step"] for event in events if event.get("cat") == "kernel"}
        if DEVICE:
            self.assertGreaterEqual(len(with_kernels), 5)
        else:
            self.assertEqual(with_kernels, set())

    def test_a_profile_that_the_disk_has_no_room_for_is_told_and_leaves_nothing(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        with tempfile.TemporaryDirectory() as folder:
            with ServingProcess(*SIM, "--profile-dir", folder, before_start=small_files) as server:
                self.assertEqual(server.post("/start_profile")[0], 200)
                self.assertEqual(server.post("/generate", native(3000))[0], 200)
                status, answer = server.post("/stop_profile")
                self.assertEqual((status, answer["error"]["code"]), (500, "profile_not_written"))
                self.assertIn("File too large", answer["error"]["message"])
                self.assertNotIn(folder, answer["error"]["message"])
                self.assertEqual(os.listdir(folder), [])
                # The next one begins anew, and fits.
                self.assertEqual(server.post("/start_profile")[0], 200)
                self.assertEqual(server.post("/stop_profile")[0], 200)
                file, = pathlib.Path(folder).iterdir()
                json.loads(file.read_text())
            self.assertEqual(server.process.returncode, 0)

    def test_signals_that_mean_nothing_here_end_nothing(self):
        with ServingProcess(*SIM) as server:
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
                server.process.send_signal(number)
                self.assertEqual(server.get("/readyz")[0], 200)
            self.assertIsNone(server.process.poll())
        self.assertEqual(server.process.returncode, 0)

    def test_probes_answer(self):
        for path in ("/livez", "/readyz", "/health", "/health_generate"):
            self.assertEqual(self.server.get(path)[0], 200, path)

    def test_metrics_parse_have_every_documented_name_and_agree_with_the_client(self):
        before = self.server.metrics()
        prompt = completion = 0
        for i in range(6):
            status, answer = self.server.post("/generate", native(3 + i, f"Apples {i}"))
            self.assertEqual(status, 200)
            prompt += answer["meta_info"]["prompt_tokens"]
            completion += answer["meta_info"]["completion_tokens"]
        self.idle()
        after = self.server.metrics()

        def grown(name):
            return after[name] - before.get(name, 0)
        for prefix in ("fathom:", "sglang:", "vllm:"):
            self.assertEqual(grown(prefix + "prompt_tokens_total"), prompt)
            self.assertEqual(grown(prefix + "generation_tokens_total"), completion)
            self.assertEqual(grown(prefix + "e2e_request_latency_seconds_count"), 6)
            self.assertEqual(grown(prefix + "inter_token_latency_seconds_count"), completion - 6)
        self.assertEqual(grown("fathom:requests_total{finish_reason=length}"), 6)
        self.assertEqual(grown("sglang:num_requests_total"), 6)
        self.assertEqual(after["fathom:num_running_requests"], 0)
        self.assertEqual(after["fathom:kv_used_tokens"], 0)
        self.assertEqual(sum(after[f"fathom:kv_{kind}_tokens"] for kind in ("used", "available", "evictable", "fenced")),
                         after["fathom:max_total_tokens"])
        names = {re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name) for name in after}
        manual = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
        documented = {re.sub(r"\{.*", "", name) for name in re.findall(r"`((?:fathom|sglang|vllm):[^`]+)`", manual)}
        self.assertGreater(len(documented), 60)
        self.assertEqual(documented - names, set())
        self.assertEqual(names - documented, set())


class LogTest(unittest.TestCase):
    """The lines are judged when the server has ended: then there is none to come any more."""

    def test_each_request_has_one_line(self):
        with ServingProcess(*slow_engine(2000), "--log-level", "debug") as server:
            server.post("/generate", native(5), headers={"x-request-id": "mine-1"})
            server.read_stream(native(5))
            server.post("/v1/completions", {"prompt": "Hi", "max_tokens": -1})
            server.get("/nowhere")
            server.get("/livez")
            server.get("/health_generate")
            connection, response = server.open("POST", "/generate", native(5000, stream=True))
            response.read(10)
            response.close()
            connection.close()
            eventually(lambda: len(server.log_lines("request")) >= 7, "the client that went to be noticed")
        lines = server.log_lines("request")
        shown = [(line["level"], line["endpoint"], line["status"], line["client_gone"]) for line in lines]
        # Connections live on several threads, so neighbours may be written in either order.
        self.assertCountEqual(shown, [("info", "/generate", 200, False), ("info", "/generate", 200, False),
                                      ("info", "/v1/completions", 400, False), ("info", "", 404, False),
                                      ("debug", "/livez", 200, False), ("debug", "/health_generate", 200, False),
                                      ("info", "/generate", 200, True)])
        lines = [line for line in lines if line["endpoint"] == "/generate"]
        mine, = (line for line in lines if line["id"] == "mine-1")
        self.assertEqual((mine["completion_tokens"], mine["finish"]), (5, "length"))
        self.assertCountEqual([line["finish"] for line in lines], ["length", "length", "client_gone"])
        for line in lines:
            if line["finish"] == "length":
                for field in ("queue_ms", "ttft_ms", "itl_p50_ms", "total_ms", "prompt_tokens", "cached_tokens", "key_name"):
                    self.assertIn(field, line)

    def test_what_went_well_without_the_model_is_quiet_and_lines_can_be_off(self):
        with ServingProcess(*SIM) as server:
            for path in ("/livez", "/readyz", "/metrics", "/", "/stats", "/v1/models"):
                server.get(path)
            server.get("/nowhere")
        self.assertEqual([line["status"] for line in server.log_lines("request")], [404])
        with ServingProcess(*SIM, "--no-log-requests", "--log-level", "debug") as server:
            server.post("/generate", native(2))
            server.get("/nowhere")
            server.get("/livez")
        self.assertEqual(server.log_lines("request"), [])

    def test_nothing_a_client_sends_breaks_a_line_or_shows_its_text(self):
        attack = 'x\n{"level":"error"}\r\t\x1b[31m"\\\u2028'
        secret = "the prompt nobody may read"
        with ServingProcess(*SIM) as server:
            server.post("/generate", native(2, secret, rid="r-1"))
            server.post("/v1/completions", {"model": attack, "prompt": secret})
            server.post("/generate", native(2, secret, rid=attack))
            server.get("/v1/models/" + "%0a%1b%5b31m")
            for bad in ("a b", 'a"b', "a\tb", "x" * 200):
                server.get("/nowhere", headers={"x-request-id": bad})
        lines, text = server.log_lines("request"), server.log_text()
        self.assertEqual(len(lines), 8)
        self.assertNotIn("error", [line["level"] for line in lines])
        self.assertNotIn(secret, text)
        self.assertNotIn("31m", text)
        for line in text.splitlines():
            self.assertFalse(re.search(r"[\x00-\x1f\x7f]", line), line)
        for line in lines:
            self.assertRegex(line["id"], r"^[A-Za-z0-9_.:-]{1,128}$")


class CountTest(unittest.TestCase):
    """The demo model: what usage says is what came."""

    @classmethod
    def setUpClass(cls):
        cls.server = ServingProcess(*SMALL).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def test_completion_tokens_are_the_output_ids(self):
        ask = {"text": "Question: Tom has 3 apples and buys 4. How many?\nAnswer:"}
        for sampling in ({"max_new_tokens": 1}, {"max_new_tokens": 40}, {"max_new_tokens": 40, "ignore_eos": True},
                         {"max_new_tokens": 40, "stop": ["."]}, {"max_new_tokens": 40, "stop": ["e"], "n": 3},
                         {"max_new_tokens": 0}):
            body = {**ask, "sampling_params": {"temperature": 0.8, "sampling_seed": 3, **sampling}}
            status, answers = self.server.post("/generate", body)
            self.assertEqual(status, 200, answers)
            events = self.server.read_stream(body)
            for i, answer in enumerate(answers if isinstance(answers, list) else [answers]):
                ids, info = answer["output_ids"], answer["meta_info"]
                self.assertEqual(info["completion_tokens"], len(ids), sampling)
                mine = [event for event in events[:-1] if event.get("index", 0) == i]
                self.assertEqual((mine[-1]["text"], mine[-1]["output_ids"]), (answer["text"], ids), sampling)
                self.assertEqual(mine[-1]["meta_info"]["completion_tokens"], len(ids))
                if info["finish_reason"]["type"] == "length":
                    self.assertEqual(len(ids), sampling["max_new_tokens"])
                for stop in sampling.get("stop", ()):
                    self.assertNotIn(stop, answer["text"])

    def test_usage_of_the_openai_endpoints_is_what_the_native_one_counts(self):
        prompt = "Question: Tom has 3 apples and buys 4. How many?\nAnswer:"
        for extra in ({}, {"stop": ["."]}, {"n": 3}):
            body = {"prompt": prompt, "max_tokens": 30, "temperature": 0.8, "seed": 3, **extra}
            usage = self.server.post("/v1/completions", body)[1]["usage"]
            sampling = {"max_new_tokens": 30, "temperature": 0.8, "sampling_seed": 3, **extra}
            answers = self.server.post("/generate", {"text": prompt, "sampling_params": sampling})[1]
            answers = answers if isinstance(answers, list) else [answers]
            self.assertEqual(usage["completion_tokens"], sum(len(a["output_ids"]) for a in answers), extra)
            self.assertEqual(usage["prompt_tokens"], answers[0]["meta_info"]["prompt_tokens"])
            self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
            connection, response = self.server.open("POST", "/v1/completions",
                                                    {**body, "stream": True, "stream_options": {"include_usage": True}})
            streamed = events_of(response.read().decode())
            connection.close()
            self.assertEqual(streamed[-2]["usage"]["completion_tokens"], usage["completion_tokens"])


if __name__ == "__main__":
    skipping.main()
