"""Runs `fathom bench ablation` with few rows on the demo model: two ranks answer as row 1, a row that cannot run says why
and ends nothing, and the files say so."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["FATHOM_PROGRAM"]
MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/demo"
SMALL = ["--clients", 2, "--input-len", 8, "--output-len", 4, "--query-tokens", 8, "--num-questions", 2,
         "--max-new-tokens", 16]


def bench_ablation(*args):
    return subprocess.run([PROGRAM, "bench", "ablation", "--model-path", str(MODEL), "--device", "cpu", "--dequantize",
                           "--dtype", "float32", *map(str, SMALL), *map(str, args)], capture_output=True, text=True,
                          check=False, timeout=120, encoding="utf-8")


class BenchAblationTest(unittest.TestCase):
    def test_rows_answer_as_the_first_one(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder, name) for name in ("a.json", "a.md", "a.svg")]
            done = bench_ablation("--rows", "16", "K7", "F7", "--json", files[0], "--markdown", files[1], "--svg",
                                  files[2])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(files[0].read_text())
            tables, picture = files[1].read_text(), files[2].read_text()
        rows = {row["row"]: row for row in result["rows"]}
        self.assertEqual(list(rows), ["1", "16", "K7", "F7"])
        for name, row in rows.items():
            self.assertTrue(row["runs"], row)
            self.assertEqual((row["num_equal"], row["num_answers"]), (3, 3), name)
            self.assertGreater(row["measured"]["query"]["tokens_per_second"], 0)
            self.assertGreater(row["measured"]["batches"][0]["tokens_per_second"], 0)
        settings = rows["16"]["measured"]["settings"]
        self.assertTrue(settings["disable_fusion"] and settings["disable_radix_cache"])
        self.assertEqual((settings["attention_backend"], settings["dp_size"], settings["ep_size"]), ("generic", 2, 1))
        self.assertEqual(settings["speculative_algorithm"], "NEXTN")
        self.assertEqual(rows["1"]["measured"]["settings"]["cuda_graph_bs"], [1, 2])
        self.assertIn("4 rows, 0 of them", tables)
        self.assertIn("K7 TC CG RC FI NN EP DP", picture)

    def test_a_row_that_cannot_run_says_why_and_counts(self):
        done = bench_ablation("--rows", "3", "--tp-size", 1)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("row 3    x  DP-Attention needs --tp-size 2 or more", done.stdout)
        self.assertIn("answers as row 1's: 3 of 3", done.stdout)

    def test_a_model_of_another_form_takes_the_place_of_the_first(self):
        done = bench_ablation("--rows", "X1", "X7", "X13", "X2", "--int8-model-path", "/nowhere")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, "row X1   .*answers as row 1's: 3 of 3")
        self.assertIn("row X7   x  --model-path /nowhere", done.stdout)
        self.assertIn("row X13  x  W4 needs --int4-model-path", done.stdout)
        self.assertIn("row X2   x  JIT needs a GPU", done.stdout)

    def test_what_a_child_says_is_the_reason(self):
        done = bench_ablation("--rows", "1", "--tp-size", 3)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("row 1    x  --tp-size 3 does not divide num_attention_heads, 8", done.stdout)

    def test_a_row_that_takes_too_long_is_ended(self):
        done = bench_ablation("--rows", "1", "--time-limit", 1, "--requests-per-client", 100000)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("x  took longer than 1 s (--time-limit)", done.stdout)

    def test_unknown_rows_and_places_are_refused_first(self):
        done = bench_ablation("--rows", "17")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("--rows 17: there are 1 to 16", done.stderr)
        done = bench_ablation("--json", "/nowhere/a.json")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/nowhere/a.json: cannot write", done.stderr)


if __name__ == "__main__":
    unittest.main()
