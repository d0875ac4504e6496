"""OpenAI's JavaScript client, unchanged, in Node against `fathom serve` on the demo model: openai_js_cases.mjs."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import openai_js
import skipping

openai_js.checkout()
NODE = openai_js.needed("node")
openai_js.needed("esbuild")

from serving import Serving  # noqa: E402

CASES = pathlib.Path(__file__).with_name("openai_js_cases.mjs")


class OpenAiJsTest(unittest.TestCase):
    def test_every_case_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            bundle = pathlib.Path(folder) / "openai.mjs"
            openai_js.bundle(bundle)
            server = Serving("--api-key", "secret-key")
            self.addCleanup(server.close)
            done = subprocess.run([NODE, "--test-reporter=tap", CASES], capture_output=True, text=True, check=False,
                                  env={**os.environ, "OPENAI_BUNDLE": bundle.as_uri(), "SERVER_URL": server.url})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        named = CASES.read_text(encoding="utf-8").count("\ntest('")
        self.assertEqual(int(re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)[1]), named, done.stdout)


if __name__ == "__main__":
    skipping.main()
