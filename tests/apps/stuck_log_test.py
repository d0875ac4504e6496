"""A log reader that stops reading costs lines and nothing else: requests, probes, streams and the drain go on, and
the lines that were dropped are counted.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["FATHOM_PROGRAM"]
PATIENCE_SECONDS = 300
# A pipe holds 64 KiB and the server's queue 512 KiB; the lines of a request and of a probe with such an id have
# more than 500 bytes.
REQUESTS = 1200
REQUEST_ID = "i" * 100


class StuckServer:
    """Its standard error is a pipe that nobody reads until read_log() is called."""

    def __init__(self, log_format):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--model-path", str(ROOT / "models" / "demo"), "--port", "0", "--engine", "sim",
             "--log-format", log_format, "--sim-step-us", "2000", "--log-level", "debug"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.url = re.match(r"Fathom is ready: (\S+)", line)[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def ask(self, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"X-Request-ID": REQUEST_ID})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()

    def metric(self, name):
        return float(re.search(rf"^{name}{{.*}} (\S+)$", self.ask("/metrics")[1], re.M)[1])

    def fill_log(self):
        """Every request and every probe is answered, whether or not there is room for its line."""
        generate = {"text": "a", "sampling_params": {"max_new_tokens": 1}}
        for index in range(REQUESTS):
            assert self.ask("/generate", generate)[0] == 200, index
            assert self.ask("/livez")[0] == 200, index

class StuckLog(unittest.TestCase):
    def log_after_a_stall(self, log_format):
        """All that a reader gets which reads only when the server has ended: what the pipe held."""
        with StuckServer(log_format) as server:
            server.fill_log()
            self.assertGreater(server.metric("fathom:log_lines_dropped_total"), 0)
            request = urllib.request.Request(server.url + "/generate", json.dumps(
                {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}}).encode())
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as stream:
                first = stream.readline()
                self.assertTrue(first.startswith(b"data:"), first)
                server.process.send_signal(signal.SIGTERM)
                rest = stream.read().decode()
            self.assertIn("[DONE]", rest)
            self.assertEqual(server.process.wait(PATIENCE_SECONDS), 0)
            return server.process.stderr.read()

    def test_text(self):
        log = self.log_after_a_stall("text")
        self.assertIn("event=listening", log)

    def test_json(self):
        # The last line may be cut where the pipe was full.
        lines = [json.loads(line) for line in self.log_after_a_stall("json").splitlines()[:-1]]
        self.assertIn("listening", [line["event"] for line in lines])

    def test_says_how_many_lines_are_missing_once_its_reader_goes_on(self):
        with StuckServer("json") as server:
            server.fill_log()
            dropped = server.metric("fathom:log_lines_dropped_total")
            lines = []
            reader = threading.Thread(target=lambda: lines.extend(server.process.stderr))
            reader.start()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(PATIENCE_SECONDS), 0)
            reader.join(PATIENCE_SECONDS)
            events = [json.loads(line) for line in lines]
            named = sum(event["lines"] for event in events if event["module"] == "log")
            self.assertGreaterEqual(named, dropped)
            self.assertEqual(events[-1]["event"], "drained")


if __name__ == "__main__":
    unittest.main()
