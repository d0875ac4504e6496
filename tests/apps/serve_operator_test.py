"""`fathom serve` as its operator meets it: admin routes, metrics, profiles, logs, exact counts."""
import json
import os
import pathlib
import re
import resource
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
from serve_inputs import DEVICE, SIM, SMALL, native, slow_engine  # noqa: E402
from serving_process import DEMO, ROOT, ServingProcess, eventually, events_of, in_background  # noqa: E402


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

    def test_fields_that_no_api_has_are_refused_or_ignored_as_the_operator_says(self):
        body = {"prompt": "Hi", "max_tokens": 1, "temprature": 0}
        status, answer = self.server.post("/v1/completions", body)
        self.assertEqual((status, answer["error"]["param"]), (400, "temprature"))
        self.assertEqual(self.server.get("/server_info")[1]["unknown_fields"], "by-endpoint")
        with ServingProcess(*slow_engine(100), "--unknown-fields", "ignore") as server:
            self.assertEqual(server.get("/server_info")[1]["unknown_fields"], "ignore")
            self.assertEqual(server.post("/v1/completions", body)[0], 200)
            self.assertEqual(server.post("/v1/completions", {**body, "use_beam_search": True})[0], 400)

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
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1, signal.SIGXFSZ, signal.SIGALRM,
                           signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPIPE):
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
        documented = {re.sub(r"\{.*", "", name) for name in re.findall(r"`((?:fathom:|sglang:|vllm:|process_)[^`]+)`", manual)}
        # Only with keys, with lanes, with a collector, with a router, with a GPU.
        rare = ["fathom:key_", "fathom:lane_", "fathom:traces_", "fathom:kv_event"] + ([] if DEVICE else ["fathom:gpu_"])
        sometimes = {name for name in documented if name.startswith(tuple(rare))}
        self.assertGreater(len(documented), 60)
        self.assertEqual(documented - names - sometimes, set())
        self.assertEqual(names - documented, set())
        if DEVICE:
            used, total = (after[f"fathom:gpu_memory_{which}_bytes{{gpu=0}}"] for which in ("used", "total"))
            self.assertTrue(1e9 < used < total < 1e12, (used, total))
            self.assertTrue(10 < after["fathom:gpu_temperature_celsius{gpu=0}"] < 100)
            self.assertTrue(30 < after["fathom:gpu_power_watts{gpu=0}"] < 1500)


class LogTest(unittest.TestCase):
    """The lines are judged when the server has ended: then there is none to come any more."""

    def test_each_request_has_one_line(self):
        with ServingProcess(*slow_engine(2000), "--log-level", "debug") as server:
            server.post("/generate", native(5), headers={"x-request-id": "mine-1"})
            server.read_stream(native(5))
            server.post("/v1/completions", {"prompt": "Hi", "max_tokens": -2})
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
