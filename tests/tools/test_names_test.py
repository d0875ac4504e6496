"""Every test of this build has a name that can be read, typed and relied on to be the same tomorrow.

Runs on the build that ctest runs in, so a parameterised test without a name generator fails here.
"""
import collections
import json
import os
import re
import subprocess
import unittest

MAX_LENGTH = 150


def problems_of(names):
    problems = [f"{name}: {count} tests have this name" for name, count in collections.Counter(names).items()
                if count > 1]
    for name in names:
        # The part that an instantiation appends: Suite.test/parameter.
        parameter = re.search(r"\.[^./]+/([^.]*)$", name)
        if not re.fullmatch(r"[\w./-]+", name, re.ASCII):
            problems.append(f"{name!r}: has other characters than letters, digits and _ . / -")
        elif re.search(r"0x[0-9a-fA-F]{4}", name):
            problems.append(f"{name}: has an address in it")
        elif len(name) > MAX_LENGTH:
            problems.append(f"{name}: has {len(name)} characters, may have {MAX_LENGTH}")
        elif parameter and not re.search(r"[A-Za-z]", parameter.group(1)):
            problems.append(f"{name}: its parameter has no name but a number; give the instantiation a name generator")
    return problems


class TestNamesTest(unittest.TestCase):
    def test_all_names_of_this_build_are_good(self):
        listed = subprocess.run(["ctest", "--test-dir", os.environ["FATHOM_BUILD_DIR"], "--show-only=json-v1"],
                                capture_output=True, text=True, check=True)
        names = [test["name"] for test in json.loads(listed.stdout[listed.stdout.index("{"):])["tests"]]
        self.assertIn("tools.test_names", names)
        self.assertEqual(problems_of(names), [])

    def test_good_names_pass(self):
        self.assertEqual(problems_of(["core.Table/Validate.accepts_the_range/top_p_one", "apps.command_line",
                                      "ops.backends/LinearTest.multiplies/fast-avx2", "text.Bpe.merges_v3"]), [])

    def test_each_kind_of_bad_name_is_found(self):
        for name, part in (("core.Table/Validate.accepts/32-byte object <30-71 8D-F1>", "other characters"),
                           ("core.Table/Validate.accepts/caf\u00e9", "other characters"),
                           ("core.Table/Validate.accepts/\x1b", "other characters"),
                           ("core.Suite.accepts<int>", "other characters"),
                           ("core.Table/Validate.accepts/0x55d0c0ffee", "address"),
                           ("core.Table/Validate.accepts/12", "no name but a number"),
                           ("core.Suite." + "a" * 150, "may have 150")):
            with self.subTest(name):
                problems = problems_of([name])
                self.assertEqual(len(problems), 1, problems)
                self.assertIn(part, problems[0])
        self.assertIn("2 tests have this name", problems_of(["a.b", "a.b"])[0])


if __name__ == "__main__":
    unittest.main()
