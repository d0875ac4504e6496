"""tools/check_bench.py finds what is too slow, and what was not measured."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_bench  # noqa: E402


def good_lines(model):
    return [{"batch_size": size, "input_len": 1024, "median_decode_latency": step_ms / 1e3 * 0.99,
             "prefill_throughput": prefill * 1.01, "device": "NVIDIA H200, 132 multiprocessors"} for size, (step_ms, prefill) in check_bench.BOUNDS[model].items()]


class CheckBenchTest(unittest.TestCase):
    def check(self, model, lines):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "lines.jsonl")
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            done = subprocess.run([sys.executable, "-B", ROOT / "tools" / "check_bench.py", path, model],
                                  capture_output=True, text=True, check=False)
        self.assertEqual("SKIPPED" in done.stdout, "NVIDIA H200" not in str(lines))
        return done.returncode, done.stderr

    def test_what_is_within_the_bounds_passes(self):
        for model in check_bench.BOUNDS:
            self.assertEqual(self.check(model, good_lines(model)), (0, ""))

    def test_each_figure_has_a_bound(self):
        for model, bounds in check_bench.BOUNDS.items():
            for i, size in enumerate(bounds):
                for key, factor in (("median_decode_latency", 1.05), ("prefill_throughput", 0.9)):
                    lines = good_lines(model)
                    lines[i][key] *= factor
                    status, errors = self.check(model, lines)
                    self.assertEqual((status, len(errors.splitlines())), (1, 1), errors)
                    self.assertIn(f"{model}, {size} sequences: ", errors)

    def test_a_missing_row_or_figure_is_a_failure(self):
        lines = good_lines("v2-lite")
        self.assertIn("128 sequences: not measured", self.check("v2-lite", lines[:-1])[1])
        lines[-1]["input_len"] = 64
        self.assertEqual(self.check("v2-lite", lines)[0], 1)
        lines = good_lines("v3-rank")
        del lines[0]["median_decode_latency"]
        self.assertEqual(self.check("v3-rank", lines)[0], 1)

    def test_the_bounds_of_another_gpu_are_not_known(self):
        lines = [{**line, "device": "NVIDIA H100 80GB HBM3", "median_decode_latency": 1} for line in good_lines("v2-lite")]
        self.assertEqual(self.check("v2-lite", lines), (0, ""))


if __name__ == "__main__":
    unittest.main()
