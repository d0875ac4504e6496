"""guidellm from PyPI, unchanged: short benchmarks of `fathom serve` on the demo model by each of its routes.

guidellm wants PyTorch, which is 5 GB, for an iterator alone.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import skipping
import venv_python

if not os.environ.get("FATHOM_ALL_CLIENTS"):
    skipping.skip("guidellm wants PyTorch, which is 5 GB", "make clients")
venv_python.enter("evals")
TORCH = venv_python.packages("torch")

from demo_questions import THINKING, WEATHER  # noqa: E402
from serving import DEMO, PATIENCE_SECONDS, Serving  # noqa: E402

NUM_REQUESTS, OUTPUT_TOKENS = 4, 16
CHAT = "/v1/chat/completions"


def run(command, environment):
    """Its exit status and output. A benchmark whose prompts cannot be made goes on for ever, in several processes."""
    process = subprocess.Popen(command, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=2 * PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return process.returncode, output


class GuidellmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)

    def requests(self, route, body=None, **data):
        """What it measured of each request, a stream, as its own report has it. All were answered."""
        backend = {"kind": "openai_http", "target": self.server.url, "request_format": route, "api_key": "secret-key",
                   "extras": {"body": {"temperature": 0, **(body or {})}}}
        data = {"kind": "synthetic_text", "prompt_tokens": 32, "output_tokens": OUTPUT_TOKENS, **data}
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            status, output = run(
                [sys.executable, "-m", "guidellm", "run", "--disable-console", "--backend", json.dumps(backend),
                 "--tokenizer", f"kind=huggingface_auto,model={DEMO}", "--profile", "kind=concurrent,streams=2",
                 "--constraint", f"kind=max_requests,count={NUM_REQUESTS}", "--data", json.dumps(data),
                 "--output", f"kind=json,path={report}"],
                {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder,
                 "PYTHONPATH": str(TORCH), "USE_TORCH": "1"})
            self.assertEqual(status, 0, output)
            requests = json.loads(report.read_text())["benchmarks"][0]["requests"]
        self.assertEqual(requests["errored"], [])
        self.assertEqual(len(requests["successful"]), NUM_REQUESTS)
        return requests["successful"]

    def test_every_request_is_answered_in_full(self):
        for route in ("/v1/completions", "/v1/responses"):
            with self.subTest(route):
                for request in self.requests(route):
                    self.assertEqual(request["output_metrics"]["text_tokens"], OUTPUT_TOKENS)
                    self.assertTrue(request["output"])

    def test_thinking_is_apart_and_counted(self):
        for request in self.requests(CHAT, body=THINKING):
            self.assertEqual(request["output_metrics"]["text_tokens"], OUTPUT_TOKENS)
            self.assertTrue(request["reasoning_output"])
            self.assertGreater(request["info"]["timings"]["token_iterations"], 2)

    def test_a_tool_is_called_and_its_result_answered(self):
        requests = self.requests(CHAT, tool_call_turns=1, tools=[WEATHER])
        calls = [call["function"] for request in requests for call in request["tool_calls"] or []]
        self.assertEqual({call["name"] for call in calls}, {"get_weather"})
        for call in calls:
            self.assertIsInstance(json.loads(call["arguments"])["city"], str)
        self.assertEqual(len(calls), NUM_REQUESTS // 2)
        for request in requests:
            self.assertTrue(request["output"] or request["tool_calls"])


if __name__ == "__main__":
    skipping.main()
