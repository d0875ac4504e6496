"""What SGLang's benchmark clients send and read, replayed field for field against `fathom serve`.

The payloads and the parsing are those of `sglang.bench_serving` (its three backends), `bench_one_batch_server`
and the GSM8K bench.
"""
import concurrent.futures
import http.client
import json
import re
import unittest
import urllib.parse

import skipping
from serving import DEMO, Serving

INPUT_IDS = [[7 + i, 40, 300 + i, 12, 900, 61, 5, 77] * 12 for i in range(6)]
GSM8K_STOP = ["Question", "Assistant:", "<|separator|>"]


class Client:
    def __init__(self, url):
        self.address = urllib.parse.urlparse(url).netloc

    def send(self, method, path, body=None):
        """(status, response): read it to its end, then close()."""
        connection = http.client.HTTPConnection(self.address, timeout=600)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def whole(self, method, path, body=None):
        connection, response = self.send(method, path, body)
        text = response.read().decode()
        connection.close()
        return response.status, text

    def json(self, method, path, body=None):
        status, text = self.whole(method, path, body)
        if status != 200:
            raise AssertionError(f"{method} {path} gave {status}: {text}")
        return json.loads(text)

    def chunks(self, path, body):
        """As the benchmark reads a stream: line by line, `data: ` cut off, empty lines skipped, to [DONE]."""
        connection, response = self.send("POST", path, body)
        if response.status != 200:
            raise AssertionError(f"{path} gave {response.status}: {response.read()}")
        done = False
        for line in response:
            line = line.strip()
            if not line:
                continue
            if done:
                raise AssertionError(f"after [DONE]: {line}")
            if line.startswith(b":"):
                raise AssertionError(f"the client would parse a comment as JSON: {line}")
            data = line[6:] if line.startswith(b"data: ") else line
            if data == b"[DONE]":
                done = True
            else:
                yield json.loads(data)
        connection.close()
        if not done:
            raise AssertionError("no [DONE]")


class BenchReplayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving()
        cls.addClassCleanup(cls.server.close)
        cls.client = Client(cls.server.url)

    def at_once(self, run, items):
        with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
            return list(pool.map(run, items))


class BenchServingTest(BenchReplayTest):
    def setUp(self):
        models = self.client.json("GET", "/v1/models")
        self.model = models["data"][0]["id"]

    def test_what_it_asks_before_and_after(self):
        info = self.client.json("GET", "/model_info")
        self.assertEqual(info.get("tokenizer_path") or info["model_path"], str(DEMO))
        self.assertTrue((DEMO / "tokenizer.json").is_file())
        for path in ("/flush_cache", "/flush_cache?timeout=100.0"):
            self.assertEqual(self.client.whole("POST", path)[0], 200, path)
        for _ in range(2):
            state = self.client.json("GET", "/server_info")["internal_states"][0]
            self.assertIsNone(state.get("avg_spec_accept_length"), "nothing is drafted, so no length is reported")

    def test_backend_sglang(self):
        def run(prompt):
            text, num_tokens, last, num_events = "", 0, 0, 0
            for data in self.client.chunks("/generate", {
                    **prompt, "sampling_params": {"temperature": 0.0, "max_new_tokens": 24, "ignore_eos": True},
                    "stream": True, "lora_path": None, "return_logprob": False, "return_routed_experts": False,
                    "logprob_start_len": -1}):
                if data.get("text"):
                    self.assertTrue(data["text"].startswith(text.rstrip("\ufffd")), "the text is cumulative")
                    text, num_tokens = data["text"], data["meta_info"]["completion_tokens"]
                    self.assertGreaterEqual(num_tokens, last)
                    last, num_events = num_tokens, num_events + 1
                self.assertGreater(data["meta_info"]["prompt_tokens"], 0)
            self.assertGreater(num_events, 1)
            self.assertEqual(num_tokens, 24)
        self.at_once(run, [{"text": "Question: What is 2+3?"}] + [{"input_ids": ids} for ids in INPUT_IDS])

    def test_backend_sglang_oai(self):
        def run(prompt):
            text, output_len = "", 24
            for data in self.client.chunks("/v1/completions", {
                    "model": self.model, "prompt": prompt, "best_of": 1, "max_tokens": 24, "stream": True,
                    "temperature": 0.0, "ignore_eos": True}):
                # Indexed in every chunk, so no chunk may come with empty choices.
                if data["choices"][0]["text"]:
                    text += data["choices"][0]["text"]
                    output_len = (data.get("usage") or {}).get("completion_tokens", output_len)
            self.assertEqual(output_len, 24)
            whole = self.client.json("POST", "/v1/completions", {
                "model": self.model, "prompt": prompt, "max_tokens": 24, "temperature": 0.0, "ignore_eos": True})
            self.assertEqual(text, whole["choices"][0]["text"])
            self.assertEqual(whole["usage"]["completion_tokens"], 24)
        self.at_once(run, [f"Question: What is {i}+3?\nAnswer:" for i in range(6)])

    def test_backend_sglang_oai_chat(self):
        def run(prompt):
            text, output_len = "", None
            for data in self.client.chunks("/v1/chat/completions", {
                    "model": self.model, "messages": [{"role": "user", "content": prompt}], "max_completion_tokens": 24,
                    "stream": True, "temperature": 0.0, "ignore_eos": True, "stream_options": {"include_usage": True}}):
                output_len = (data.get("usage") or {}).get("completion_tokens", output_len)
                choices = data.get("choices") or []
                if choices:
                    delta = choices[0].get("delta") or {}
                    text += (delta.get("reasoning_content") or "") + (delta.get("content") or "")
            self.assertEqual(output_len, 24)
            self.assertTrue(text)
        self.at_once(run, [f"What is {i}+3?" for i in range(6)])


class OneBatchServerTest(BenchReplayTest):
    def counter(self, name):
        found = re.search(name + r"\{[^}]*\}\s+([\d.eE+-]+)", self.client.whole("GET", "/metrics")[1])
        self.assertIsNotNone(found, name)
        return float(found.group(1))

    def run_batch(self, stream_interval, output_len=16):
        started, ended = {}, {}
        for data in self.client.chunks("/generate", {
                "sampling_params": {"temperature": 0.0, "max_new_tokens": output_len, "ignore_eos": True,
                                    "json_schema": None, "stream_interval": stream_interval},
                "return_logprob": False, "stream": True, "input_ids": INPUT_IDS}):
            self.assertNotIn("error", data)
            reason = data["meta_info"]["finish_reason"]
            if reason is not None:
                self.assertEqual(reason["type"], "length")
                ended[data["index"]] = data["meta_info"]["completion_tokens"]
            if data["meta_info"]["completion_tokens"] == 1:
                started[data["index"]] = True
        self.assertEqual(sorted(started), list(range(len(INPUT_IDS))), "a request without a chunk of its first token")
        self.assertEqual(ended, {index: output_len for index in range(len(INPUT_IDS))})

    def test_the_state_that_it_reads(self):
        info = self.client.json("GET", "/server_info")
        self.assertEqual(info["tokenizer_path"], str(DEMO))
        state = info["internal_states"][0]
        self.assertGreater(state["effective_max_running_requests_per_dp"], 0)
        self.assertEqual(state["dp_size"], info["dp_size"])
        self.assertEqual(state["memory_usage"]["token_capacity"], 32768 * info["dp_size"])
        self.run_batch(stream_interval=1)
        self.assertGreater(self.client.json("GET", "/server_info")["internal_states"][0]["last_gen_throughput"], 0)

    def test_every_request_of_a_batch_has_a_chunk_of_its_first_token(self):
        for stream_interval in (1, 8):
            with self.subTest(stream_interval=stream_interval):
                self.assertEqual(self.client.whole("POST", "/flush_cache")[0], 200)
                self.run_batch(stream_interval)

    def test_cached_and_prompt_tokens_are_counted(self):
        self.assertEqual(self.client.whole("POST", "/flush_cache")[0], 200)
        self.run_batch(stream_interval=1)
        cached, prompt = self.counter("sglang:cached_tokens_total"), self.counter("sglang:prompt_tokens_total")
        self.run_batch(stream_interval=1)
        num_tokens = sum(len(ids) for ids in INPUT_IDS)
        self.assertEqual(self.counter("sglang:prompt_tokens_total") - prompt, num_tokens)
        self.assertEqual(self.counter("sglang:cached_tokens_total") - cached, 64 * len(INPUT_IDS), "whole blocks come from the cache")


class Gsm8kTest(BenchReplayTest):
    NUM_QUESTIONS, NUM_THREADS = 40, 16

    @staticmethod
    def number_of(text):
        numbers = re.findall(r"\d+", text.replace(",", ""))
        return int(numbers[-1]) if numbers else None

    def test_accuracy_on_the_demo_models_problems(self):
        self.assertEqual(self.client.json("GET", "/get_model_info")["model_path"], str(DEMO))
        problem = "Question: {question}\nAnswer:"
        shots = "".join(f"{problem.format(**shot)} {shot['answer']}\n\n"
                        for shot in json.loads((DEMO / "shots.json").read_text()))

        def ask(line):
            answer = self.client.json("POST", "/generate", {"text": shots + problem.format(**line), "sampling_params": {
                "skip_special_tokens": True, "spaces_between_special_tokens": True, "max_new_tokens": 512,
                "min_new_tokens": 0, "n": 1, "stop": GSM8K_STOP, "stop_token_ids": None, "stop_regex": None,
                "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0,
                "presence_penalty": 0.0, "ignore_eos": False, "regex": None, "json_schema": None}})
            self.assertNotIn("Question", answer["text"])
            self.assertGreater(answer["meta_info"]["completion_tokens"], 0)
            return self.number_of(answer["text"]) == self.number_of(line["answer"])

        lines = json.loads((DEMO / "eval.json").read_text())[:self.NUM_QUESTIONS]
        with concurrent.futures.ThreadPoolExecutor(self.NUM_THREADS) as pool:
            correct = list(pool.map(ask, lines))
        self.assertGreaterEqual(sum(correct) / len(correct), 0.95)


if __name__ == "__main__":
    skipping.main()
