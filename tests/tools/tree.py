"""A small source tree in a temporary folder, for the tests of the build tools."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class TreeTest(unittest.TestCase):
    """Writes files below self.root and runs a tool of tools/ on it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_tool(self, tool, root=None, arguments=()):
        """(exit status, what it wrote to standard error)"""
        done = subprocess.run([sys.executable, "-B", ROOT / "tools" / tool, "--root", root or self.root, *arguments],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def assert_refused(self, tool, *parts):
        status, errors = self.run_tool(tool)
        self.assertEqual(status, 1, errors)
        for part in parts:
            self.assertIn(part, errors)
        return errors

    def assert_passes(self, tool):
        status, errors = self.run_tool(tool)
        self.assertEqual((status, errors), (0, ""))
