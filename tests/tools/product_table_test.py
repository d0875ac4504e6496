#!/usr/bin/env python3
"""The table of products that go to cuBLASLt is what the committed measurements say, and follows its rule."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "product_table.py"
MEASURED = ROOT / "docs" / "perf" / "gpu-operators"


def table(*paths):
    return subprocess.run([sys.executable, TOOL, *paths], capture_output=True, text=True, check=True).stdout


class ProductTableTest(unittest.TestCase):
    def test_the_table_is_that_of_the_measurements(self):
        written = (ROOT / "src" / "cuda" / "gemm" / "product_table.inc").read_text(encoding="utf-8")
        self.assertEqual(table(MEASURED / "products-fathom.jsonl", MEASURED / "products-cublaslt.jsonl"), written)

    def test_a_twentieth_counts_and_rows_in_between_go_with_the_nearest(self):
        def lines(*times):
            return [{"dtype": "bf16", "out": 64, "in": 32, "tokens": tokens, "us": us} for tokens, us in times]
        with tempfile.TemporaryDirectory() as folder:
            ours, library = pathlib.Path(folder, "ours"), pathlib.Path(folder, "library")
            # Fewer rows than the table is for; two runs whose mean counts; too little; the last and all beyond.
            runs = ((ours, lines((64, 9), (200, 10), (200, 12), (800, 10), (3200, 10))),
                    (library, lines((64, 1), (200, 10), (800, 9.6), (3200, 9))))
            for path, of_path in runs:
                path.write_text("".join(json.dumps(line) + "\n" for line in of_path), encoding="utf-8")
            self.assertEqual(table(ours, library).splitlines()[1:],
                             ["{DType::kBf16, 64, 32, 129, 400, 200},",
                              "{DType::kBf16, 64, 32, 1600, kAnyMore, 3200},"])


if __name__ == "__main__":
    unittest.main()
