"""A `fathom serve` under test: started on a port that the kernel chose, asked over HTTP, ended by SIGTERM.

    with ServingProcess("--engine", "sim") as server:
        status, answer = server.post("/generate", {"text": "Hi"})
    server.log_lines()                     # standard error as JSON objects
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models" / "demo"
PROGRAM = os.environ["FATHOM_PROGRAM"]
# One processor that others keep busy, and a sanitizer's build. For what never comes: a wait ends with its condition.
PATIENCE_SECONDS = 300


def run_serve(*args, timeout=PATIENCE_SECONDS, model=DEMO):
    """A start that fails: exit status and standard error."""
    done = subprocess.run([PROGRAM, "serve", "--model-path", str(model), *map(str, args)], capture_output=True, text=True,
                          timeout=timeout, check=False, env=environment())
    return done.returncode, done.stderr


def rank_flags():
    """The ranks that tools/ranks_serving.sh runs a test of a server on."""
    return os.environ.get("FATHOM_TEST_FLAGS", "").split()


def environment(extra=None):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FATHOM_")}
    return {**kept, **(extra or {})}


def eventually(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS} s for {what}"
        time.sleep(0.01)


class ServingProcess:
    def __init__(self, *args, model=DEMO, env=None, key=None, tls=None, before_start=None):
        self.key, self.tls = key, tls
        # pylint: disable=consider-using-with
        self.log = tempfile.NamedTemporaryFile(prefix="fathom-serve-", suffix=".log")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--model-path", str(model), "--port", "0", "--log-format", "json", *rank_flags(), *map(str, args)],
            stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment(env), preexec_fn=before_start)
        self.port = self.final_log = None

    def __enter__(self):
        try:
            self.wait_listening()
            line = self.process.stdout.readline()
            assert line.startswith("Fathom is ready: "), line + self.log_text()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def wait_listening(self):
        """The port, from the log: it is open before the weights are there."""
        def found():
            match = re.search(r'"event":"listening","url":"[^"]*:(\d+)"', self.log_text())
            self.port = int(match.group(1)) if match else None
            return match or self.process.poll() is not None
        eventually(found, "the server to listen")
        assert self.port, self.log_text()
        return self

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.final_log = self.log_text()
        self.log.close()
        return self.process.returncode

    def log_text(self):
        if self.final_log is not None:
            return self.final_log
        text = pathlib.Path(self.log.name).read_bytes()
        return text[:text.rfind(b"\n") + 1].decode()  # the last line may be half written

    def log_lines(self, event=None):
        lines = [json.loads(line) for line in self.log_text().splitlines()]
        return [line for line in lines if event is None or line["event"] == event]

    def connection(self):
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS,
                                           context=ssl.create_default_context(cafile=self.tls))

    def open(self, method, path, body=None, key=None, headers=None):
        """The connection and the answer's head; the body is the caller's to read."""
        connection = self.connection()
        sent = dict(headers or {})
        if key or self.key:
            sent["Authorization"] = "Bearer " + (key or self.key)
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, json.dumps(body) if body is not None else None, sent)
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, key=None, headers=None):
        connection, response = self.open(method, path, body, key, headers)
        text = response.read().decode()
        connection.close()
        is_json = (response.headers["content-type"] or "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text

    def get(self, path, key=None, headers=None):
        return self.ask("GET", path, None, key, headers)

    def post(self, path, body=None, key=None, headers=None):
        return self.ask("POST", path, {} if body is None else body, key, headers)

    def metrics(self):
        """Series without labels that every series has; labels of their own stay in the name."""
        status, text = self.get("/metrics")
        assert status == 200, text
        return parse_prometheus(text)

    def read_stream(self, body, path="/generate"):
        """Events of a stream, [DONE] included as text."""
        connection, response = self.open("POST", path, {**body, "stream": True})
        assert response.status == 200, response.read()
        events = events_of(response.read().decode())
        connection.close()
        return events


def events_of(text):
    data = [part[len("data: "):] for part in text.split("\n\n") if part.startswith("data: ")]
    return [part if part == "[DONE]" else json.loads(part) for part in data]


SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')
SHARED_LABELS = ("model_name", "engine_type")


def parse_prometheus(text):
    """{name or name{own labels}: value}. Every line must be well-formed, every series typed and unique."""
    types, values = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} typed twice"
            assert kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
            continue
        if line.startswith("# HELP ") or not line:
            continue
        match = SAMPLE.match(line)
        assert match, line
        name, labels, value = match.groups()
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in types or types.get(family) == "histogram", line
        pairs = LABEL.findall(labels or "")
        assert ",".join(f'{key}="{value}"' for key, value in pairs) == (labels or "").rstrip(","), line
        own = ",".join(f"{key}={value}" for key, value in pairs if key not in SHARED_LABELS)
        series = f"{name}{{{own}}}" if own else name
        assert series not in values, f"{series} twice"
        values[series] = float(value)
    return values


def in_background(function):
    """Runs it on a thread; call the result to wait for what it returned or raised."""
    done = concurrent.futures.Future()

    def run():
        try:
            done.set_result(function())
        except BaseException as error:  # pylint: disable=broad-exception-caught
            done.set_exception(error)
    threading.Thread(target=run, daemon=True).start()
    return lambda: done.result(PATIENCE_SECONDS)


def occupied_port():
    """A socket that listens, and its port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener, listener.getsockname()[1]
