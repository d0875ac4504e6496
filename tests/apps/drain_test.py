"""SIGTERM against the built server on the simulation backend: what is in flight finishes, what comes then is
refused, a second signal and the drain's timeout end the rest with an error.

With FATHOM_TEST_DEVICE=cuda in the environment the demo model runs on the GPU instead.
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["FATHOM_PROGRAM"]
DEVICE = os.environ.get("FATHOM_TEST_DEVICE")
IN_FLIGHT = 100
# Generous: a sanitizer's build on a busy machine. Shorter than the answers of 8000 steps, so that what ends within it
# was ended.
PATIENCE_S = 120
ENDLESS_TOKENS, ENDLESS_STEP_US = 8000, 20000
# Seconds: long enough to ask while they go on. Steps of the demo
# model take about a millisecond.
SLOW_TOKENS, SLOW_STEP_US = 4000 if DEVICE else 400, 40000


def engine(step_us):
    if DEVICE:
        return ["--device", DEVICE, "--max-total-tokens", "524288"]
    return ["--engine", "sim", "--max-total-tokens", "262144", "--sim-step-us", str(step_us)]


class Server:
    def __init__(self, *args, step_us=0):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--model-path", str(ROOT / "models" / "demo"), "--port", "0", *engine(step_us),
             "--max-running-requests", "256", "--no-log-requests",
             *os.environ.get("FATHOM_TEST_FLAGS", "").split(), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        match = None
        while match is None:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the server ended with status {self.process.wait()}")
            match = re.match(r"Fathom is ready: http://127\.0\.0\.1:(\d+)", line)
        self.port = int(match[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def call(self, method, path, body=None, begun=None):
        """(status, headers, body); raises when the server closes without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            response = connection.getresponse()
            received = b""
            try:
                received += response.read1(1)
                if begun:
                    begun.set()
                received += response.read()
            except http.client.IncompleteRead as error:  # a stream that failed has no end
                received += error.partial
            return response.status, response.headers, received.decode()
        finally:
            connection.close()

    def generate(self, index, num_tokens, stream, begun=None):
        """begun: set once something of the stream has come."""
        return self.call("POST", "/generate", {
            "input_ids": [16 + index % 1000, 17, 18], "stream": stream,
            "sampling_params": {"temperature": 0, "max_new_tokens": num_tokens, "ignore_eos": True}}, begun)

    def readiness(self):
        return json.loads(self.call("GET", "/readyz")[2])

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def status(self):
        return self.process.wait(PATIENCE_S)


def events(body):
    return [line[6:] for line in body.split("\n") if line.startswith("data: ")]


class DrainTest(unittest.TestCase):
    def in_flight(self, server, count, num_tokens):
        """Futures of requests, every second one a stream, once all of them run and every stream has begun. They begin
        together, so that the first is not done before the last has begun."""
        self.assertEqual(server.call("POST", "/pause_generation")[0], 200)
        pool = concurrent.futures.ThreadPoolExecutor(count)
        self.addCleanup(pool.shutdown)
        begun = [threading.Event() for _ in range(count)]
        futures = [pool.submit(server.generate, i, num_tokens, i % 2 == 0, begun[i]) for i in range(count)]
        self.until(lambda: server.readiness()["waiting"] == count, f"{count} requests to wait")
        self.assertEqual(server.call("POST", "/continue_generation")[0], 200)
        deadline = time.monotonic() + PATIENCE_S
        for event in begun[::2]:
            self.assertTrue(event.wait(deadline - time.monotonic()), f"waited {PATIENCE_S} s for every stream to begin")
        self.until(lambda: server.readiness()["running"] == count, f"{count} requests to run at the same time")
        return futures

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited {PATIENCE_S} s for {what}")
            time.sleep(0.005)

    def wait_draining(self, server):
        """Until the signal has been taken; returns the first answer."""
        answers = []

        def is_draining():
            answers.append(server.call("GET", "/readyz"))
            return answers[-1][0] != 200
        self.until(is_draining, "readiness to end")
        status, _, body = answers[-1]
        return status, json.loads(body)

    def check_whole(self, index, num_tokens, answer):
        status, _, body = answer
        self.assertEqual(status, 200, body)
        if index % 2 == 0:
            stream = events(body)
            self.assertEqual(stream[-1], "[DONE]")
            self.assertLessEqual(len(stream), num_tokens + 1)  # a client that reads slowly gets some joined
            body = stream[-2]
        last = json.loads(body)
        self.assertEqual(len(last["output_ids"]), num_tokens)
        self.assertEqual(last["meta_info"]["finish_reason"]["type"], "length")

    def check_failed(self, index, answer):
        """An error in its own event and no [DONE], or a 503."""
        status, _, body = answer
        if index % 2 == 0:
            self.assertEqual(status, 200)
            stream = events(body)
            self.assertGreater(len(stream), 1)
            self.assertIn("error", json.loads(stream[-1]))
        else:
            self.assertEqual(status, 503)
            self.assertIn("error", json.loads(body))

    def test_requests_in_flight_finish_and_new_ones_are_refused(self):
        with Server(step_us=SLOW_STEP_US) as server:
            futures = self.in_flight(server, IN_FLIGHT, SLOW_TOKENS)
            server.terminate()
            status, body = self.wait_draining(server)
            self.assertEqual((status, body["status"]), (503, "draining"))
            self.assertGreater(body["open_requests"], 0)
            self.assertLessEqual(body["open_requests"], IN_FLIGHT)
            self.check_refusals(server)
            for index, future in enumerate(futures):
                self.check_whole(index, SLOW_TOKENS, future.result(PATIENCE_S))
            self.assertEqual(server.status(), 0)

    def check_refusals(self, server):
        self.assertEqual(server.call("GET", "/livez")[0], 200)
        for stream in (False, True):
            status, headers, body = server.generate(0, 1, stream)
            self.assertEqual(status, 503, body)
            self.assertGreater(int(headers["Retry-After"]), 0)
            self.assertEqual(headers["Connection"], "close")
            self.assertIn("error", json.loads(body))

    def test_a_second_signal_ends_at_once_with_an_error_for_the_rest(self):
        with Server(step_us=ENDLESS_STEP_US) as server:
            futures = self.in_flight(server, 20, ENDLESS_TOKENS)
            server.terminate()
            self.assertEqual(self.wait_draining(server)[1]["open_requests"], 20)
            server.terminate()
            for index, future in enumerate(futures):
                self.check_failed(index, future.result(PATIENCE_S))
            self.assertEqual(server.status(), 1)

    def test_what_is_left_at_the_timeout_ends_with_an_error(self):
        with Server("--drain-timeout", "0.5", step_us=ENDLESS_STEP_US) as server:
            futures = self.in_flight(server, 20, ENDLESS_TOKENS)
            begin = time.monotonic()
            server.terminate()
            for index, future in enumerate(futures):
                self.check_failed(index, future.result(PATIENCE_S))
            self.assertGreaterEqual(time.monotonic() - begin, 0.5)
            self.assertEqual(server.status(), 0)

    def test_an_idle_server_ends_at_once(self):
        with Server() as server:
            idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
            self.addCleanup(idle.close)
            idle.request("GET", "/livez")
            self.assertEqual(idle.getresponse().read(), b'{"status":"alive"}')
            server.terminate()
            self.assertEqual(server.status(), 0)


if __name__ == "__main__":
    unittest.main()
