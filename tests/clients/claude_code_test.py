"""Claude Code, as it comes in the wheel of claude-agent-sdk, unchanged, against `fathom serve` on the demo model, with
nothing but loopback to reach.

The demo model is too small to drive an agent. A proxy therefore changes what it asks of the model: the first request
with tools must call Read, with one path as its argument, and other answers are a short JSON text, greedily chosen, since
the model would not come to an end. With all its tools and its own system prompt the agent's first request has 24,000
tokens of this tokenizer, minutes of a busy processor: so it has Read alone and a short prompt where the model computes,
and all of both where the simulation stands for the model. Everything else is the agent's and the server's own: the
agent reads the file, sends the result, and ends with the model's next answer.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import skipping
import venv_python

if not os.environ.get("FATHOM_ALL_CLIENTS"):
    skipping.skip("Claude Code is a wheel of 170 MB, too large for `make test`", "make clients")
PROGRAM = venv_python.packages("claude") / "claude_agent_sdk" / "_bundled" / "claude"
if not os.access(PROGRAM, os.X_OK):
    skipping.skip(f"{PROGRAM} does not run here", "another platform, for which there is a wheel with the program")

import loopback_only  # noqa: E402

loopback_only.enter()

from recording_proxy import RecordingProxy  # noqa: E402
from serving import PATIENCE_SECONDS, Serving  # noqa: E402

SECRET = "The word of the day is marmalade."


class ForcedRead:
    """Makes the first request with tools call Read with this path."""

    def __init__(self, path):
        self.path, self.is_done = str(path), False

    def __call__(self, path, body):
        if not path.startswith("/v1/messages") or "count_tokens" in path:
            return body
        body["temperature"] = 0
        body.pop("thinking", None)  # Anthropic's API has no forced call while it thinks
        names = [tool["name"] for tool in body.get("tools", [])]
        if self.is_done or "Read" not in names:
            body["output_config"] = {"format": {"type": "json_schema", "schema": {"type": "string", "maxLength": 24}}}
            if names:
                body["tool_choice"] = {"type": "none"}
            return body
        self.is_done = True
        read = body["tools"][names.index("Read")]
        read["input_schema"] = {"type": "object", "properties": {"file_path": {"const": self.path}},
                                "required": ["file_path"], "additionalProperties": False}
        body["tool_choice"] = {"type": "tool", "name": "Read"}
        return body


def results_in(body):
    """The texts of the results of tools in a request."""
    return [json.dumps(block.get("content")) for message in body["messages"] if isinstance(message["content"], list)
            for block in message["content"] if block["type"] == "tool_result"]


class ClaudeCodeTest(unittest.TestCase):
    def run_agent(self, folder, proxy, *settings):
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "CLAUDE_CONFIG_DIR": folder + "/config",
                       "ANTHROPIC_BASE_URL": proxy.url, "ANTHROPIC_API_KEY": "secret-key", "ANTHROPIC_MODEL": "default",
                       "ANTHROPIC_DEFAULT_HAIKU_MODEL": "default", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                       "DISABLE_AUTOUPDATER": "1"}
        process = subprocess.run(
            [str(PROGRAM), "-p", "Read note.txt and tell me the word.", "--output-format", "stream-json", "--verbose",
             "--allowedTools", "Read", "--max-turns", "4", *settings], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False)
        lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
        self.assertTrue(lines, process.stdout + process.stderr)
        return lines

    def serve(self, change, *args, max_total_tokens=16_384):
        server = Serving("--api-key", "secret-key", *args, max_total_tokens=max_total_tokens)
        self.addCleanup(server.close)
        proxy = RecordingProxy(server.url, change)
        self.addCleanup(proxy.close)
        return proxy

    def converse(self, *settings, **serving):
        """The requests of a whole conversation, in which the agent reads a file."""
        with tempfile.TemporaryDirectory() as folder:
            note = pathlib.Path(folder) / "note.txt"
            note.write_text(SECRET + "\n")
            forced = ForcedRead(note)
            proxy = self.serve(forced, *serving.pop("args", ()), **serving)
            lines = self.run_agent(folder, proxy, *settings)
        messages = [one for one in proxy.exchanges if one.path.startswith("/v1/messages")]
        self.assertEqual({one.status for one in messages}, {200}, [one.answer for one in messages if one.status != 200])
        self.assertTrue(forced.is_done)
        self.assertIn("context_management", messages[0].sent)
        result = lines[-1]
        self.assertEqual((result["type"], result["is_error"]), ("result", False), lines[-3:])
        with_results = [one for one in messages if results_in(one.sent)]
        self.assertTrue(with_results, "no result was sent")
        self.assertIn("marmalade", results_in(with_results[-1].sent)[-1])
        self.assertIn("message_stop", with_results[-1].answer)
        return messages

    def test_a_conversation_with_a_tool_and_its_result(self):
        messages = self.converse("--tools", "Read", "--system-prompt", "You read files.")
        self.assertGreater(messages[0].sent["max_tokens"], 16_384, "what the context has left is less")

    def test_with_all_its_tools_and_its_own_system_prompt(self):
        messages = self.converse(args=("--engine", "sim"), max_total_tokens=131_072)
        self.assertGreater(max(len(one.sent.get("tools", [])) for one in messages), 10)


if __name__ == "__main__":
    skipping.main()
