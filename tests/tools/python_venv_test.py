"""tools/python_venv.sh and the requirements that it installs."""
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "clients"


class PythonVenvTest(unittest.TestCase):
    def test_every_requirement_has_one_version(self):
        for path in CLIENTS.glob("requirements*.txt"):
            lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
            self.assertTrue(lines, path)
            for line in lines:
                self.assertRegex(line, r"^[a-z0-9][a-z0-9._-]*(\[[a-z0-9,]+\])?==[0-9][A-Za-z0-9.+]*$", path)
            names = [line.partition("==")[0] for line in lines]
            self.assertEqual(len(names), len(set(names)), path)

    def test_every_set_that_is_asked_for_is_there_and_the_other_way_round(self):
        # Tests in C++ read a tokenizer from a set of its own.
        asked = set(re.findall(r"venv-([a-z0-9-]+)", (ROOT / "tests" / "published_tokenizer.h").read_text()))
        for path in [*CLIENTS.glob("*_test.py"), *(ROOT / "tests" / "page").glob("*_test.py")]:
            asked |= set(re.findall(r'^.*venv_python\.(?:enter|packages)\("?([a-z0-9-]*)', path.read_text(), re.M))
        for path in (ROOT / "tools" / "package").iterdir():
            asked |= set(re.findall(r"tools/python_venv\.sh ([a-z0-9-]+)", path.read_text()))
        there = {path.stem.removeprefix("requirements").removeprefix("-") for path in CLIENTS.glob("requirements*.txt")}
        self.assertEqual(asked, there)

    def test_a_set_that_is_not_there_is_told_by_its_file(self):
        done = subprocess.run([ROOT / "tools" / "python_venv.sh", "nonsense"], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("there is no tests/clients/requirements-nonsense.txt; to run it: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
