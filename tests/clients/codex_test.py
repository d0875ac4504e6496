"""Codex CLI from PyPI, unchanged, against `fathom serve` on the demo model: a whole turn with a call of a tool.

It runs on a loopback of its own (loopback.py), since an agent runs what a model says. The demo model is far too small
to drive an agent, so a proxy between the two chooses for it in the first request: it sets `tool_choice` to the command
tool and leaves that tool one command to ask for. Everything else passes as Codex and the server wrote it.
"""
import http.client
import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

import skipping
import venv_python

if not os.environ.get("FATHOM_ALL_CLIENTS"):
    skipping.skip("Codex is a program of 360 MB", "make clients")
venv_python.enter("codex")

import loopback  # noqa: E402

loopback.enter()

from serving import PATIENCE_SECONDS, Serving  # noqa: E402

CODEX = venv_python.packages("codex") / "codex_cli_bin" / "bin" / "codex"
TOOL, COMMAND, OUTPUT = "exec_command", "echo $((41 + 1)) files", "42 files"
CONFIG = """
model = "demo"
model_provider = "fathom"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.fathom]
name = "fathom"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


class Proxy(http.server.BaseHTTPRequestHandler):
    target, requests, statuses = "", [], []

    def choose(self, body):
        body["tool_choice"] = {"type": "function", "name": TOOL}
        for tool in body["tools"]:
            if tool.get("name") == TOOL:
                tool["parameters"] = {"type": "object", "properties": {"cmd": {"enum": [COMMAND]}}, "required": ["cmd"],
                                      "additionalProperties": False}

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append(json.loads(json.dumps(body)))
        if len(self.requests) == 1:
            self.choose(body)
        connection = http.client.HTTPConnection(self.target, timeout=PATIENCE_SECONDS)
        connection.request("POST", self.path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.statuses.append(answer.status)
        self.send_response(answer.status)
        self.send_header("content-type", answer.getheader("content-type"))
        self.end_headers()
        while piece := answer.read1():
            self.wfile.write(piece)
            self.wfile.flush()
        connection.close()

    def log_message(self, *_):
        pass


class CodexTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving()
        cls.addClassCleanup(cls.server.close)
        Proxy.target = cls.server.url.removeprefix("http://")
        cls.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        cls.addClassCleanup(cls.proxy.shutdown)
        threading.Thread(target=cls.proxy.serve_forever, daemon=True).start()

    def run_codex(self, prompt):
        """What it tells of the turn, its own events."""
        with tempfile.TemporaryDirectory() as folder:
            home, work = pathlib.Path(folder) / "home", pathlib.Path(folder) / "work"
            home.mkdir()
            work.mkdir()
            url = f"http://127.0.0.1:{self.proxy.server_address[1]}"
            (home / "config.toml").write_text(CONFIG.format(url=url), encoding="utf-8")
            done = subprocess.run(
                [CODEX, "exec", "--json", "--skip-git-repo-check", prompt], cwd=work, stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "HOME": str(work), "CODEX_HOME": str(home)}, capture_output=True,
                text=True, timeout=4 * PATIENCE_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def test_a_turn_with_a_call_and_its_result(self):
        events = self.run_codex("How many files are there?")
        self.assertEqual(Proxy.statuses, [200, 200])
        first, second = Proxy.requests
        # What makes this a test: the kinds of tools and the hints that a strict server stumbles over.
        self.assertLessEqual({"function", "namespace", "web_search"}, {tool["type"] for tool in first["tools"]})
        self.assertEqual(first["include"], ["reasoning.encrypted_content"])
        self.assertIn("client_metadata", first)
        self.assertEqual(second["input"][:len(first["input"])], first["input"])
        call, = (item for item in second["input"] if item["type"] == "function_call")
        result, = (item for item in second["input"] if item["type"] == "function_call_output")
        self.assertEqual((call["name"], json.loads(call["arguments"])), (TOOL, {"cmd": COMMAND}))
        self.assertEqual(result["call_id"], call["call_id"])
        self.assertIn(OUTPUT, json.dumps(result["output"]))
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        commands = [item for item in items if item["type"] == "command_execution"]
        self.assertIn(OUTPUT, commands[0]["aggregated_output"])
        self.assertEqual(items[-1]["type"], "agent_message")
        self.assertTrue(items[-1]["text"])
        self.assertEqual(events[-1]["type"], "turn.completed")
        self.assertGreater(events[-1]["usage"]["input_tokens"], 10_000)


if __name__ == "__main__":
    skipping.main()
