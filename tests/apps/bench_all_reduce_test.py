"""Runs `fathom bench all-reduce` among ranks of the CPU: every rank has the right sum, and a line says how long it took."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["FATHOM_PROGRAM"]


def bench_all_reduce(*args):
    return subprocess.run([PROGRAM, "bench", "all-reduce", "--device", "cpu", *map(str, args)], capture_output=True,
                          text=True, check=False, timeout=120, encoding="utf-8")


class BenchAllReduceTest(unittest.TestCase):
    def test_sums_are_right_and_timed(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "results.jsonl")
            done = bench_all_reduce("--tp-size", 3, "--bytes", 2048, 65536, "--replays", 2, "--result-filename", file)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual([line["bytes"] for line in lines], [2048, 65536])
        for line in lines:
            self.assertTrue(line["right"])
            self.assertEqual(line["ranks"], 3)
            self.assertGreater(line["own_us"], 0)
            self.assertNotIn("nccl_us", line)

    def test_a_size_that_is_no_row_is_refused(self):
        done = bench_all_reduce("--bytes", 3000)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--bytes 3000 is not a multiple of 2048", done.stderr)


if __name__ == "__main__":
    unittest.main()
