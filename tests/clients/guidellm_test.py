"""guidellm from PyPI, unchanged: a short benchmark of `fathom serve` on the demo model by each of its routes."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import skipping
import venv_python

venv_python.enter("guidellm", on_request=True)

from serving import DEMO, Serving  # noqa: E402

NUM_REQUESTS, OUTPUT_TOKENS = 4, 16


class GuidellmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)

    def run_benchmark(self, route, folder):
        """What it measured, as its own report has it."""
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run(
            [sys.executable, "-m", "guidellm", "run", "--disable-console",
             "--backend", f"kind=openai_http,target={self.server.url},request_format={route},api_key=secret-key",
             "--tokenizer", f"kind=huggingface_auto,model={DEMO}", "--profile", "kind=concurrent,streams=2",
             "--constraint", f"kind=max_requests,count={NUM_REQUESTS}",
             "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={OUTPUT_TOKENS}",
             "--output", f"kind=json,path={report}"],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder},
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(report.read_text())["benchmarks"][0]

    def test_every_request_is_answered_in_full(self):
        for route in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
            with self.subTest(route), tempfile.TemporaryDirectory() as folder:
                requests = self.run_benchmark(route, folder)["requests"]
                self.assertEqual(requests["errored"], [])
                self.assertEqual(len(requests["successful"]), NUM_REQUESTS)
                for request in requests["successful"]:
                    self.assertEqual(request["output_metrics"]["text_tokens"], OUTPUT_TOKENS)


if __name__ == "__main__":
    skipping.main()
