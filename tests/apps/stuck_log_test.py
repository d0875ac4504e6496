"""A log reader that stops reading costs lines and nothing else: requests, probes, streams and the drain go on, and
the lines that were dropped are counted. Nor does a collector of spans that accepts connections and never reads.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from serving_process import eventually

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["FATHOM_PROGRAM"]
PATIENCE_SECONDS = 300
# A pipe holds 64 KiB and the server's queue 512 KiB; the lines of a request and of a probe with such an id have
# more than 500 bytes.
REQUESTS = 1200
REQUEST_ID = "i" * 100


LONGEST_GAP_SECONDS = 0.1
# Each with servers of its own; a gap that the machine made is in few of them.
ROUNDS = 4


class LogServer:
    """Its standard error is a pipe that nobody reads, but for what a test reads at the end; or goes nowhere."""

    def __init__(self, log_format, *args, is_stuck=True):
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--model-path", str(ROOT / "models" / "demo"), "--port", "0", "--engine", "sim",
             "--log-format", log_format, "--sim-step-us", "2000", "--log-level", "debug", *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE if is_stuck else subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        self.url = re.match(r"Fathom is ready: (\S+)", line)[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        if self.process.stderr:
            self.process.stderr.close()

    def ask(self, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"X-Request-ID": REQUEST_ID})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()

    def metric(self, name):
        return float(re.search(rf"^{name}{{.*}} (\S+)$", self.ask("/metrics")[1], re.M)[1])

    def ask_and_probe(self):
        assert self.ask("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 1}})[0] == 200
        assert self.ask("/livez")[0] == 200

    def fill_log(self):
        """Every request and every probe is answered, whether or not there is room for its line."""
        for _ in range(REQUESTS):
            self.ask_and_probe()


class TimedStream(threading.Thread):
    """A stream with an event every 2 ms and the longest that its client has waited for one, also for the next."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(server.url.rpartition("/")[2], timeout=PATIENCE_SECONDS)
        self.connection.request("POST", "/v1/completions", json.dumps(
            {"model": "default", "prompt": "a", "stream": True, "ignore_eos": True, "max_tokens": 100_000}))
        self.response = self.connection.getresponse()
        assert self.response.readline().startswith(b"data:")
        self.longest, self.last = 0.0, time.monotonic()
        self.start()

    def run(self):
        # One that breaks brings no more events, which is a long gap.
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while line := self.response.readline():
                if line.startswith(b"data:"):
                    now = time.monotonic()
                    self.longest, self.last = max(self.longest, now - self.last), now

    def end(self):
        longest = max(self.longest, time.monotonic() - self.last)
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(PATIENCE_SECONDS)
        self.connection.close()
        return longest


def longest_gaps(stuck, other):
    """Of a stream of each server, while the log of the first fills and overflows, and a profile of it is recorded."""
    streams = [TimedStream(server) for server in (stuck, other)]
    assert stuck.ask("/start_profile", {})[0] == 200
    stuck.fill_log()
    assert stuck.ask("/stop_profile", {})[0] == 200
    return [stream.end() for stream in streams]


@contextlib.contextmanager
def stuck_collector():
    """Spans may be sent there: connections open, and nobody reads."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class StuckLog(unittest.TestCase):
    def log_after_a_stall(self, log_format, *args):
        """All that a reader gets which reads only when the server has ended: what the pipe held."""
        rounds = []
        for _ in range(ROUNDS):
            with (tempfile.TemporaryDirectory() as folder,
                  LogServer(log_format, "--profile-dir", folder, *args) as stuck,
                  LogServer(log_format, *args, is_stuck=False) as other):
                rounds.append(longest_gaps(stuck, other))
                # A busy machine holds up the other server's stream as long.
                if rounds[-1][0] <= max(LONGEST_GAP_SECONDS, 2 * rounds[-1][1]):
                    return self.log_after_a_drain(stuck)
        return self.fail(f"longest gaps of a stream, seconds, with a stuck log and without: {rounds}")

    def log_after_a_drain(self, server):
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
        with stuck_collector() as url:
            log = self.log_after_a_stall("json", "--otlp-traces-endpoint", url)
        # The last line may be cut where the pipe was full.
        lines = [json.loads(line) for line in log.splitlines()[:-1]]
        self.assertIn("listening", [line["event"] for line in lines])

    def test_says_how_many_lines_are_missing_once_its_reader_goes_on(self):
        with LogServer("json") as server:
            server.fill_log()
            dropped = server.metric("fathom:log_lines_dropped_total")
            lines = []
            reader = threading.Thread(target=lambda: lines.extend(server.process.stderr))
            reader.start()
            # Its backlog is read, or the last line may be dropped too.
            eventually(lambda: any('"lines dropped' in line for line in list(lines)), "the reader to go on")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(PATIENCE_SECONDS), 0)
            reader.join(PATIENCE_SECONDS)
            events = [json.loads(line) for line in lines]
            named = sum(event["lines"] for event in events if event["module"] == "log")
            self.assertGreaterEqual(named, dropped)
            self.assertEqual(events[-1]["event"], "drained")


if __name__ == "__main__":
    unittest.main()
