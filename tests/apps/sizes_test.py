"""Which model fits which machine: the table in the documents against what `fathom inspect` counts, and a start that is
refused before it takes the memory."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ["FATHOM_PROGRAM"]
MACHINES = ((1, 79.6), (1, 140.4), (8, 79.6), (8, 140.4), (16, 140.4))
MODELS = {"DeepSeek-V2-Lite, Coder-V2-Lite": "deepseek-v2-lite", "Moonlight-16B-A3B": "moonlight-16b-a3b",
          "DeepSeek-V2, Coder-V2, V2.5": "deepseek-v2", "DeepSeek-V3, R1, V3.1": "deepseek-v3", "DeepSeek-V3.2": "deepseek-v3.2",
          "Kimi-K2": "kimi-k2"}


def inspect(model, *args):
    done = subprocess.run([PROGRAM, "inspect", "--model-path", ROOT / "models/configs" / model, "--load-format", "dummy",
                           "--device", "cpu", "--json", *map(str, args)], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def short(tokens):
    return "-" if tokens == 0 else f"{tokens / 1e6:.2f} M" if tokens >= 1e6 else f"{tokens / 1e3:.0f} k"


def row(title, model):
    cells = []
    for gpus, memory in MACHINES:
        status, value = inspect(model, "--gpus", gpus, "--gpu-memory", memory)
        tokens = value["fit"]["cache_tokens"]
        assert status == (0 if tokens else 1), value["problems"]
        cells.append(short(tokens))
    weights = inspect(model)[1]["weight_bytes"]
    return f"| {title} | {weights / 1e9:,.0f} GB | " + " | ".join(cells) + " |"


class SizesTest(unittest.TestCase):
    def test_the_tables_say_what_inspect_counts(self):
        rows = [row(title, model) for title, model in MODELS.items()]
        for name in ("README.md", "docs/reference/sizes.md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            for line in rows:
                self.assertIn(line, text, name)

    def test_what_does_not_fit_here_is_a_problem_with_a_way_out(self):
        status, value = inspect("kimi-k2")
        self.assertEqual((status, value["fit"]["runs"], len(value["problems"])), (1, False, 1))
        self.assertRegex(value["problems"][0], r"it would not run in this machine: 1\.0 TB of weights .* --gpus 8 --gpu-memory 141")
        status, value = inspect("kimi-k2", "--gpus", 8, "--gpu-memory", 79.6)
        self.assertRegex(value["problems"][0], "each of 8 GPUs: 129.9 GB .* more ranks hold less each")

    def test_a_start_that_has_no_room_for_the_weights_says_so_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in (ROOT / "models/demo").iterdir():
                pathlib.Path(folder, file.name).symlink_to(file)
            config = json.loads((ROOT / "models/configs/deepseek-v3/config.json").read_text(encoding="utf-8"))
            pathlib.Path(folder, "config.json").unlink()
            pathlib.Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
            for command in (("serve", "--port", "0"), ("generate", "--prompt", "x")):
                done = subprocess.run([PROGRAM, *command, "--model-path", folder, "--load-format", "dummy", "--device", "cpu",
                                       "--log-level", "error"], capture_output=True, text=True, check=False, timeout=120)
                self.assertEqual(done.returncode, 1)
                line, = done.stderr.splitlines()
                self.assertTrue(re.search(r"weights larger than memory: they take 675\.\d GB, and .* are free on .*; "
                                          r".*fathom inspect --model-path .* --gpus 8 --gpu-memory 141", line), line)


if __name__ == "__main__":
    unittest.main()
