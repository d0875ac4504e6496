"""tools/run_tests.py passes on what ctest says and ends with what was skipped, left out and slow."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from tree import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import run_tests  # noqa: E402

GTEST_OUTPUT = ("[ RUN      ] Fixture.reads\\n/a tree/src/fixture_test.cc:12: Skipped\\nno fixtures\\nat <../x>"
                "; to run it: put them there\\n\\n[  SKIPPED ] Fixture.reads (0 ms)\\n")


class RunTestsTest(unittest.TestCase):
    """Each test writes a CTestTestfile.cmake of shell commands, which needs no build."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.tests = []

    def add(self, name, command, **properties):
        self.tests.append(f"add_test({name} sh -c [==[{command}]==])")
        for key, value in properties.items():
            self.tests.append(f"set_tests_properties({name} PROPERTIES {key} [==[{value}]==])")

    def run_tests(self, *args, ctest_args=()):
        """(exit status, standard output, the lines behind ctest's own)"""
        (self.root / "CTestTestfile.cmake").write_text("\n".join(self.tests))
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "tools" / "run_tests.py", *args, "--", "--test-dir", self.root, *ctest_args],
            capture_output=True, text=True, check=False)
        self.errors = done.stderr
        closing = done.stdout.rpartition("Total Test time (real)")[2]
        return done.returncode, done.stdout, closing

    def test_a_clean_run_lists_only_times(self):
        self.add("one", "exit 0")
        self.add("two", "exit 0")
        status, output, closing = self.run_tests()
        self.assertEqual(status, 0)
        self.assertIn("100% tests passed, 0 tests failed out of 2", output)
        self.assertNotIn("kipped", output)
        self.assertNotIn("Left out", output)
        self.assertRegex(closing, r"\nSlowest of 2 tests:\n +\d+\.\d s  (one|two)\n +\d+\.\d s  (one|two)\n\Z")

    def test_more_groups_than_ctest_takes_are_refused(self):
        """It would leave nothing out."""
        self.add("one", "exit 0")
        groups = "|".join(f"(a{i})" for i in range(run_tests.MAX_GROUPS))
        status, _, closing = self.run_tests("--leave-out", groups, "slow; to run it: make test")
        self.assertEqual(status, 0, self.errors)
        self.assertIn("Slowest of 1 tests", closing)
        status, _, _ = self.run_tests("--leave-out", groups + "|(b)", "slow; to run it: make test")
        self.assertNotEqual(status, 0)
        self.assertIn("10 groups together, ctest takes 9", self.errors)

    def test_cases_of_a_suite_run_in_one_process(self):
        """But for those that are left out; what has other properties, and what is no case, keeps its own."""
        program = self.root / "program"
        program.write_text(f"#!/bin/sh\necho ${{1#--gtest_filter=}} >> {self.root}/ran\n"
                           f"case $1 in *bad*) echo bad broke; exit 1;; *two*) printf '{GTEST_OUTPUT}';; esac\n")
        program.chmod(0o755)
        for case in ("All/Suite.one/a", "All/Suite.two/b", "All/Suite.slow/c", "Other.one"):
            self.tests.append(f"add_test([==[m.{case}]==] {program} [==[--gtest_filter={case}]==])")
            self.tests.append(f"set_tests_properties([==[m.{case}]==] PROPERTIES "
                              "SKIP_REGULAR_EXPRESSION [==[\\[  SKIPPED \\]]==] LABELS cpu)")
        self.add("plain", f"echo plain >> {self.root}/ran", LABELS="cpu")
        self.add("unlabelled", f"echo unlabelled >> {self.root}/ran")
        leave_out = ("--leave-out", "slow", "it takes minutes; to run it: make test")
        status, output, closing = self.run_tests("--suites", *leave_out, ctest_args=("-L", "cpu", "-j", "2"))
        self.assertEqual(status, 0, output + self.errors)
        self.assertEqual(sorted((self.root / "ran").read_text().split()),
                         ["All/Suite.one/a:All/Suite.two/b", "Other.one", "plain"])
        self.assertIn("m.All/Suite.one/a and 1 more: no fixtures at <../x>; to run it: put them there", closing)
        self.assertIn("m.All/Suite.slow/c: it takes minutes", closing)
        self.assertIn("Slowest of 3 tests:", closing)
        self.tests.append(f"add_test(m.All/Suite.bad {program} --gtest_filter=All/Suite.bad)")
        status, output, _ = self.run_tests("--suites", ctest_args=("-j2",))
        self.assertNotEqual(status, 0)
        self.assertIn("bad broke", output)

    def test_a_suite_runs_some_cases_at_a_time(self):
        program = self.root / "program"
        program.write_text(f"#!/bin/sh\necho ${{1#--gtest_filter=}} >> {self.root}/ran\n")
        program.chmod(0o755)
        count = 2 * run_tests.CASES_A_PROCESS + 2
        for case in range(count):
            self.tests.append(f"add_test(m.S.c{case} {program} --gtest_filter=S.c{case})")
            self.tests.append(f"set_tests_properties(m.S.c{case} PROPERTIES TIMEOUT 1)")
        program.write_text(program.read_text() + "sleep 1.5\n")  # too long for one case, not for several
        status, _, closing = self.run_tests("--suites")
        self.assertEqual(status, 0, self.errors)
        ran = [line.split(":") for line in (self.root / "ran").read_text().split()]
        self.assertEqual(sorted(map(len, ran)), [2, run_tests.CASES_A_PROCESS, run_tests.CASES_A_PROCESS])
        self.assertEqual(len({case for cases in ran for case in cases}), count)
        self.assertIn("Slowest of 3 tests:", closing)

    def test_what_a_test_leaves_in_the_temporary_folder_is_gone(self):
        self.add("leaves", f"mktemp -d > {self.root}/left && test -d `cat {self.root}/left`")
        status, _, _ = self.run_tests()
        self.assertEqual(status, 0)
        left = pathlib.Path((self.root / "left").read_text().strip())
        self.assertTrue(left.is_absolute())
        self.assertFalse(left.exists())

    def test_a_failure_keeps_the_exit_status_and_the_lines_of_ctest(self):
        self.add("good", "exit 0")
        self.add("bad", "echo SKIPPED: not a skip; exit 1")
        status, output, closing = self.run_tests()
        self.assertEqual(status, 8)
        self.assertIn("50% tests passed, 1 tests failed out of 2", output)
        self.assertIn("bad (Failed)", output)
        self.assertNotIn("skipped:", closing)

    def test_a_program_that_is_missing_is_a_failure_and_not_skipped(self):
        self.tests.append("add_test(gone /nowhere/at/all)")
        status, output, closing = self.run_tests()
        self.assertEqual(status, 8)
        self.assertNotIn("skipped:", closing)
        self.assertIn("gone (Not Run)", output)

    def test_what_googletest_skips_is_one_line(self):
        self.add("fixture", f"printf '{GTEST_OUTPUT}'", SKIP_REGULAR_EXPRESSION=r"\[  SKIPPED \]")
        status, _, closing = self.run_tests()
        self.assertEqual(status, 0)
        self.assertIn("1 skipped:\n  fixture: no fixtures at <../x>; to run it: put them there\n", closing)

    def test_a_python_test_is_skipped_whole_or_in_single_cases(self):
        self.add("whole", "echo 'SKIPPED: no browser; to run it: install one'; exit 77", SKIP_RETURN_CODE=77)
        # More output than ctest keeps of a passing test unless told otherwise.
        self.add("part", "seq 3000; echo 'SKIPPED: a; to run it: b'; echo 'SKIPPED: c; to run it: d'; seq 3000")
        status, _, closing = self.run_tests()
        self.assertEqual(status, 0)
        self.assertIn("3 skipped:\n  whole: no browser; to run it: install one\n"
                      "  part: a; to run it: b\n  part: c; to run it: d\n", closing)

    def test_a_skip_without_a_reason_is_listed_too(self):
        self.add("whole", "exit 77", SKIP_RETURN_CODE=77)
        self.add("part", "echo 'OK (skipped=2)'")
        self.add("vague", "echo SKIPPED: no browser")
        self.add("off", "exit 0", DISABLED="TRUE")
        _, _, closing = self.run_tests()
        self.assertIn("4 skipped:\n  whole: gives no reason\n  part: 2 cases give no reason\n"
                      "  vague: no browser; it does not say what would run it\n  off: is disabled; to run it", closing)

    def test_what_is_left_out_is_listed_with_its_reason(self):
        for name in ("page.a", "page.b", "page.c", "page.d", "line.a", "http.a", "text.a"):
            self.add(name, "exit 0")
        status, output, closing = self.run_tests(
            "--leave-out", r"^page\.", "is slow; to run it: make test", "--leave-out", "^line", "is slower",
            "--only", r"^(page|line|http)\.", "no threads")
        self.assertEqual(status, 0)
        self.assertIn("0 tests failed out of 1\n", output)
        self.assertIn("Left out of this run:\n  4 tests ^page\\.: is slow; to run it: make test\n  line.a: is slower\n"
                      "  all but ^(page|line|http)\\.: no threads\n", closing)

    def test_only_the_ten_slowest_are_listed_and_the_slowest_first(self):
        cases = [ElementTree.Element("testcase", name=f"test{i}", time=str(i % 7 + 10 * i), status="run")
                 for i in range(12)]
        lines = run_tests.report(cases, [])
        self.assertEqual(lines[:3], ["Slowest of 12 tests:", "    114.0 s  test11", "    103.0 s  test10"])
        self.assertEqual(lines[-1], "     22.0 s  test2")

    def test_no_tests_is_a_failure(self):
        self.add("one", "exit 0")
        status, _, _ = self.run_tests(ctest_args=("-R", "two"))
        self.assertNotEqual(status, 0)

    def test_the_report_is_written_to_a_file_and_replaces_an_older_one(self):
        report = self.root / "report.txt"
        report.write_text("old")
        self.add("one", "exit 0")
        _, _, closing = self.run_tests("--report", report)
        self.assertTrue(report.read_text().startswith("Slowest of 1 tests:"), report.read_text())
        self.assertTrue(closing.endswith(report.read_text()))

    def test_a_run_that_does_not_start_leaves_no_report_and_fails(self):
        report = self.root / "report.txt"
        report.write_text("old")
        status, _, _ = self.run_tests("--report", report, ctest_args=("--no-such-option", "--preset", "none"))
        self.assertNotEqual(status, 0)
        self.assertIn("ctest wrote no results", self.errors)
        self.assertFalse(report.exists())


if __name__ == "__main__":
    unittest.main()
