"""Runs `fathom tune` where it needs no GPU: what it refuses, and in which words; and what `inspect` says of the files."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["FATHOM_PROGRAM"]
CONFIGS = ROOT / "models/configs"


def run(*args):
    # No GPU, also where there is one.
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, check=False, timeout=300,
                          encoding="utf-8", env=environment)


class TuneTest(unittest.TestCase):
    def refused(self, status, *args):
        done = run(*args)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_without_a_gpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "tuned")
            for family, shape in (("gemm", "1536,1536"), ("moe", "256,256,7168,8")):
                with self.subTest(family=family):
                    text = self.refused(1, "tune", family, "--shape", shape, "--out", out)
                    self.assertIn("tune times kernels of a GPU", text)
                    self.assertEqual(text.count("\n"), 1)
            self.assertFalse(out.exists())

    def test_shapes_that_make_no_sense_are_refused_before_a_gpu_is_asked(self):
        self.assertIn("--shape of gemm is N,K", self.refused(1, "tune", "gemm", "--shape", "1536"))
        self.assertIn("--shape of moe is E,N,hidden_size,num_experts_per_tok",
                      self.refused(1, "tune", "moe", "--shape", "1,2,3"))
        self.assertIn("a token cannot take 9 of 8 experts", self.refused(1, "tune", "moe", "--shape", "8,128,512,9"))
        self.assertIn("nothing to tune", self.refused(1, "tune", "gemm"))
        self.assertIn("--rows", self.refused(2, "tune", "gemm", "--shape", "64,64", "--rows", "0"))
        self.assertIn("subcommand", self.refused(2, "tune"))

    def test_flags_are_grouped(self):
        text = run("tune", "gemm", "--help").stdout
        for group in ("Shapes:", "Search:", "Output:", "Logging:", "Examples:"):
            self.assertIn(group, text)

    def test_files_need_a_gpu(self):
        done = run("generate", "--model-path", ROOT / "models/demo", "--prompt", "a", "--device", "cpu", "--tuned-dir", "x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--tuned-dir x needs a GPU", done.stderr)

    def test_inspect_names_the_devices_that_files_ship_for(self):
        shipped = {folder.name for folder in (ROOT / "src/tuned").iterdir() if list(folder.glob("*.json"))}
        done = run("inspect", "--model-path", CONFIGS / "deepseek-v3", "--load-format", "dummy", "--device", "cpu",
                   "--gpus", 8, "--gpu-memory", 141, "--json")
        tuned = json.loads(done.stdout).get("tuned", [])
        self.assertEqual(len(tuned), len(shipped))
        for of_device in tuned:
            self.assertGreater(of_device["num_matrices"], 5)
            for shape in of_device["shapes"]:
                self.assertEqual(shape["from"], "shipped")
                self.assertIn(f"device_name={of_device['device']}", shape["file"])
                self.assertTrue(list((ROOT / "src/tuned").glob("*/" + shape["file"].replace("[", "[[]"))))
                self.assertTrue(shape["rows"])


if __name__ == "__main__":
    unittest.main()
