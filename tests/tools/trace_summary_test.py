"""tools/trace_summary.py on traces whose answers are known."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "trace_summary.py"


def work(step, begin, duration, name, category="kernel"):
    return {"ph": "X", "pid": 2, "tid": 7, "cat": category, "name": name, "ts": begin, "dur": duration,
            "args": {"step": step}}


def enqueue(step, begin, duration):
    return {"ph": "X", "pid": 1, "tid": 1, "cat": "runner", "name": "enqueue", "ts": begin, "dur": duration,
            "args": {"step": step, "slices": 1}}


def decode(step, begin):
    """40 us: two of a, the second after 2 us of nothing, and b, which begins before the second is over."""
    return [enqueue(step, begin - 90, 30), work(step, begin, 10, "a"), work(step, begin + 12, 10, "a"),
            work(step, begin + 20, 20, "b")]


class TraceSummary(unittest.TestCase):
    def summary(self, events, other=None, args=()):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.trace.json"
            path.write_text(json.dumps({"traceEvents": events, "otherData": other or {}}))
            done = subprocess.run([sys.executable, PROGRAM, path, *args], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_gaps_between_like_steps_and_launches_by_name(self):
        prefill = [enqueue(0, 10, 30), work(0, 100, 500, "large")]
        events = prefill + decode(1, 700) + decode(2, 745) + decode(3, 790) + [work(3, 835, 1, "copy", "copy")]
        status, text = self.summary(events, args=["--layers", "2"])
        self.assertEqual(status, 0, text)
        self.assertIn("3 of 4 steps are alike", text)
        # 5 us of 45 between steps; inside 2 each, and 5 more before the copy of the last.
        self.assertRegex(text, r"from step to step +45\.0 median")
        self.assertRegex(text, r"enqueueing \(host\) +30\.0 median")
        self.assertRegex(text, r"idle between steps +5\.0 median +5\.0 p99 +11\.11%")
        self.assertRegex(text, r"idle inside a step +3\.7 mean +8\.15%")
        self.assertIn("3 kernels a step", text)
        # Of 40 us: a 10 and, with what nobody does, 12; b from where a ended.
        self.assertRegex(text, r"2 +1\.00 a layer +10\.00 us each, adds +11\.00 us each +22\.0 us +a")
        self.assertRegex(text, r"1 +0\.50 a layer +20\.00 us each, adds +18\.00 us each +18\.0 us +b")

    def test_a_trace_without_kernels_says_why(self):
        status, text = self.summary([enqueue(0, 10, 30)], {"device_missing": "no library"})
        self.assertEqual(status, 1)
        self.assertIn("has no kernels: no library", text)
        self.assertIn("has no step with kernels", self.summary([enqueue(0, 10, 30)])[1])


if __name__ == "__main__":
    unittest.main()
