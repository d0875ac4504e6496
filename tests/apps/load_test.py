"""The load test of tools/load_test.sh with few streams: every token of every stream, and clients that vanish.
Times and memory are only judged by the full run, on a machine with nothing else to do."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ["FATHOM_PROGRAM"]).resolve().parent.parent


def load_test(streams, vanish, seconds, *args):
    environment = {**os.environ, "BUILD": str(BUILD), "STREAMS": str(streams), "VANISH": str(vanish),
                   "SECONDS_OPEN": str(seconds), "STEP_US": "50000"}
    return subprocess.run(
        [str(ROOT / "tools" / "load_test.sh"), "--ramp-seconds", "1", "--max-p99-ms", "0", "--max-stream-kib", "0",
         "--max-vanish-seconds", "20", *args],
        env=environment, capture_output=True, text=True, check=False, timeout=500)


class LoadTest(unittest.TestCase):
    def test_streams_are_exact_and_vanished_clients_leave_nothing(self):
        done = load_test(300, 100, 3)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("streams with a wrong token", done.stdout)

    def test_other_tokens_than_the_expected_are_noticed(self):
        done = load_test(5, 0, 1, "--vocab-size", "2000")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("other tokens than the model's", done.stdout)


if __name__ == "__main__":
    if not (BUILD / "bench" / "load_streams").exists():
        print("skipped: this build has no bench/load_streams (FATHOM_BUILD_BENCH is off)")
        sys.exit(77)  # what ctest shows as "Skipped"
    unittest.main()
