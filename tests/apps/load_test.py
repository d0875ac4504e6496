"""The load test of tools/load_test.sh with few streams: every token of every stream, and clients that vanish.
Times and memory are only judged by the full run, on a machine with nothing else to do; so SECONDS_OPEN is 0, and
streams that are opened within 3 s overlap as far as the machine is fast enough."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
import skipping  # noqa: E402

BUILD = pathlib.Path(os.environ["FATHOM_PROGRAM"]).resolve().parent.parent


def load_test(streams, vanish, *args):
    environment = {**os.environ, "BUILD": str(BUILD), "STREAMS": str(streams), "VANISH": str(vanish),
                   "SECONDS_OPEN": "0", "STEP_US": "50000"}
    return subprocess.run(
        [str(ROOT / "tools" / "load_test.sh"), "--ramp-seconds", "3", "--max-p99-ms", "0", "--max-stream-kib", "0",
         "--max-vanish-seconds", "0", *args],
        env=environment, capture_output=True, text=True, check=False, timeout=900)


class LoadTest(unittest.TestCase):
    def test_streams_are_exact_and_vanished_clients_leave_nothing(self):
        done = load_test(300, 100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("streams with a wrong token", done.stdout)

    def test_other_tokens_than_the_expected_are_noticed(self):
        done = load_test(5, 0, "--vocab-size", "2000")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("other tokens than the model's", done.stdout)


if __name__ == "__main__":
    if not (BUILD / "bench" / "load_streams").exists():
        skipping.skip("this build has no bench/load_streams", "configure with FATHOM_BUILD_BENCH=ON")
    skipping.main()
