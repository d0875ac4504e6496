"""Runs `fathom bench ops` on the demo model: what a line holds, and that the fast CPU agrees with the reference."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models" / "demo"
PROGRAM = os.environ["FATHOM_PROGRAM"]
OPERATORS = {"linear", "linear_pair", "head_linear", "embedding", "gather_rows", "add_rows", "rms_norm",
             "rms_norm_quantize", "silu_mul", "silu_mul_quantize", "quantize_fp8", "rope_table", "rope", "kv_append", "kv_gather", "mla_absorbed", "mla_expanded", "moe_gate",
             "moe_experts", "moe_experts_shared", "sample", "step_inputs", "commit_tokens", "write_words", "count_tokens",
             "draft_inputs", "draft_rows", "accept_drafts", "move_rows", "top_k", "grow_drafts", "select_rows"}
INDEX_OPERATORS = {"index_append", "index_query", "index_append_query", "index_scores", "top_rows", "mla_sparse"}
SPARSE = DEMO.parent / "configs/deepseek-v3.2"


def bench_ops(*args):
    return subprocess.run([PROGRAM, "bench", "ops", *map(str, args)], capture_output=True, text=True, check=False,
                          timeout=900, encoding="utf-8")


class BenchOpsTest(unittest.TestCase):
    def run_ok(self, *args, model=DEMO):
        """The result lines, and what was printed."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "results.jsonl")
            done = bench_ops("--model-path", model, "--device", "cpu", "--cpu-threads", 2, "--log-level", "warning",
                             "--repeat", 1, "--result-filename", file, *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [json.loads(line) for line in file.read_text().splitlines()], done.stdout

    def test_each_operator_agrees_with_the_reference(self):
        lines, text = self.run_ok("--tokens", 2)
        lines += self.run_ok("--tokens", 65, "--operators", "linear,kv_gather,mla_expanded,step_inputs,count_tokens")[0]
        lines += self.run_ok("--tokens", 17, "--operators", "draft_inputs,draft_rows,accept_drafts,move_rows")[0]
        absent = {name for name in OPERATORS if f" has no operator {name} for " in text}
        fp8_only = {"rms_norm_quantize", "silu_mul_quantize", "quantize_fp8"}
        self.assertLessEqual(OPERATORS - absent - fp8_only, {line["operator"] for line in lines})
        for line in lines:
            with self.subTest(operator=line["operator"], case=line["case"], tokens=line["tokens"]):
                self.assertLess(line["relative_error"], 1e-3)
                self.assertGreater(line["us"], 0)
                self.assertRegex(line["commit"], r"^(?:[0-9a-f]{12}(?: with changes)?|unknown)$")
                self.assertIn(f", commit {line['commit']}\n", text)
                self.assertGreater(line["bytes"], 0)
                self.assertAlmostEqual(line["floor_us"] * line["read_bandwidth_gb_per_s"] * 1e3 / line["bytes"], 1)

    def test_the_operators_of_an_indexer_agree_with_the_reference(self):
        for dtype in ("float32", "fp8_e4m3"):
            lines, _ = self.run_ok("--tokens", 3, "--operators", ",".join(sorted(INDEX_OPERATORS)), "--context-len", 70, 2500,
                                   "--kv-cache-dtype", dtype, model=SPARSE)
            self.assertEqual({line["operator"] for line in lines}, INDEX_OPERATORS)
            for line in lines:
                with self.subTest(operator=line["operator"], case=line["case"], dtype=dtype):
                    self.assertLess(line["relative_error"], 1e-3)

    def test_every_operator_of_a_step_has_cases(self):
        done = subprocess.run([PROGRAM, "inspect", "--model-path", DEMO, "--operators", "--device", "cpu"],
                              capture_output=True, text=True, check=True, timeout=300, encoding="utf-8")
        around = re.findall(r"^  (?:around them|with drafts) (.*)$", done.stdout, re.M)
        layers = re.findall(r"^    (?:before|behind|layers?|draft) [\w -]*?  +(.*)$", done.stdout, re.M)
        names = {name for line in around for name in line.split("; ")}
        names |= {part.split()[0] for line in layers for part in line.split(", ")}
        self.assertGreater(len(names), 20)
        # The plan of a step is part of what its attention is prepared with.
        self.assertLessEqual(names - {"mla_plan"}, OPERATORS)

    def test_an_operator_without_cases_is_named(self):
        lines, text = self.run_ok("--operators", "mla_plan,silu_mul,index_scores")
        self.assertEqual({line["operator"] for line in lines}, {"silu_mul"})
        self.assertIn("\nmla_plan has no case for this model\nindex_scores has no case for this model\n", text)
        self.assertNotIn("silu_mul has no case", text)

    def test_a_product_counts_its_bytes_and_its_arithmetic(self):
        lines, text = self.run_ok("--tokens", 3, "--operators", "linear", "--dtype", "float32", "--dequantize")
        config = json.loads((DEMO / "config.json").read_text())
        rows, inner, outer = 3, config["hidden_size"], config["vocab_size"]
        logits = next(line for line in lines if line["case"] == "lm_head")
        self.assertEqual(logits["bytes"], 4 * (rows * inner + inner * outer + rows * outer))
        self.assertEqual(logits["flops"], 2 * rows * inner * outer)
        self.assertGreater(logits["tflops"], 0)
        self.assertIn("lm_head", text)

    def test_the_products_of_heads_run_in_every_type_beside_float64(self):
        lines, text = self.run_ok("--tokens", 2, "--operators", "head_linear")
        self.assertEqual([(line["case"], line["dtype"]) for line in lines],
                         [(case, dtype) for case in ("w_uk", "w_uv") for dtype in ("bf16", "f32", "f8_e4m3")])
        config = json.loads((DEMO / "config.json").read_text())
        elements = config["num_attention_heads"] * 128 * 512
        rows = 2 * config["num_attention_heads"] * (128 + 512) * 4
        blocks = config["num_attention_heads"] * 4
        # Means over the copies of a call.
        self.assertEqual([round(line["bytes"]) for line in lines],
                         [rows + 2 * elements, rows + 4 * elements, rows + elements + 4 * blocks] * 2)
        table = text[text.index("products of each head, by types"):].splitlines()[2:]
        for line, row in zip(lines, table):
            self.assertRegex(row, rf"^{line['case']} .* {line['dtype']} +2 +[\d.]+ +[01]\.\d{{7}}$")
            # bf16 has 8 bits, e4m3 4, of rows and weights alike.
            nearest = {"f32": 1e-9, "bf16": 1e-5, "f8_e4m3": 1e-3}[line["dtype"]]
            self.assertLess(abs(1 - line["cosine"]), nearest)

    def test_only_the_operators_that_were_named_run_and_only_where_they_make_sense(self):
        lines, _ = self.run_ok("--tokens", 2, 600, "--operators", "sample,kv_gather")
        self.assertEqual({(line["operator"], line["tokens"]) for line in lines}, {("sample", 2), ("kv_gather", 600)})

    def test_decodes_see_the_contexts_that_were_asked_for(self):
        lines, _ = self.run_ok("--tokens", 2, "--operators", "mla_absorbed", "--context-len", 3, 70)
        self.assertEqual([line["case"] for line in lines], ["context 3", "context 70"])

    def test_verifications_of_drafts_agree_with_the_reference(self):
        lines, _ = self.run_ok("--tokens", 16, "--operators", "mla_absorbed", "--context-len", 70)
        self.assertEqual([line["case"] for line in lines],
                         ["context 70", "context 70, chain of 4", "context 70, tree of 8"])
        for line in lines:
            self.assertLess(line["relative_error"], 1e-3)
        # 16 tokens of one sequence each, of 4 sequences, of 2: the cache is read once for a sequence.
        self.assertGreater(lines[0]["bytes"], 2 * lines[1]["bytes"])
        self.assertAlmostEqual(lines[0]["flops"], lines[1]["flops"])

    def test_help_and_errors_are_those_of_the_other_commands(self):
        text = bench_ops("--help").stdout
        for part in ("\nModel:\n", "--model-path DIR", "(default: ", "Examples:\n  fathom bench ops", "--operators"):
            self.assertIn(part, text)
        self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)
        for name in ("--load-format", "--cuda-graph-bs"):
            self.assertNotIn(name, text)
        for status, args, what in ((2, ["--operators", "frob", "--model-path", DEMO], "--operators"),
                                   (2, [], "--model-path is required"),
                                   (2, ["--model-path", DEMO, "--tokens", 0], "--tokens"),
                                   (1, ["--model-path", "gone"], "is not a directory")):
            done = bench_ops(*args)
            self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    unittest.main()
