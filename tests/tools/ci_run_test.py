""".ci/run stops at the first stage that fails and ends with reports, times and the line that others read."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from tree import ROOT

STAGES = ["build-test", "test", "check", "build-asan", "asan", "build-tsan", "tsan"]


class CiRunTest(unittest.TestCase):
    def run_with(self, failing=None):
        """(exit status, lines) with a Makefile whose stages only write a report."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / ".ci").mkdir()
            (root / "build" / "asan").mkdir(parents=True)
            (root / "build" / "asan" / "test_report.txt").write_text("of an older run\n")
            shutil.copy(ROOT / ".ci" / "run", root / ".ci" / "run")
            recipes = {stage: "true" for stage in STAGES}
            recipes["asan"] = "echo 1 skipped: > build/asan/test_report.txt"
            if failing:
                recipes[failing] = "exit 3"
            (root / "Makefile").write_text("".join(f"{stage}:\n\t@{recipes[stage]}\n" for stage in STAGES))
            done = subprocess.run([root / ".ci" / "run"], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout.splitlines()

    def test_all_stages_pass(self):
        status, lines = self.run_with()
        self.assertEqual(status, 0)
        self.assertEqual(lines[-1], "7 passed, 0 failed")
        times = lines[lines.index("==> stage times") + 1:-1]
        self.assertEqual([line.split(" s  ")[1] for line in times], [*STAGES, "in all"])
        self.assertIn("1 skipped:", lines[lines.index("==> tests of build/asan"):])

    def test_the_first_failure_ends_the_run(self):
        status, lines = self.run_with(failing="check")
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "2 passed, 1 failed")
        self.assertTrue(any(line.endswith(" s  check FAILED") for line in lines))
        self.assertNotIn("==> make build-asan", lines)
        self.assertNotIn("of an older run", lines)


if __name__ == "__main__":
    unittest.main()
