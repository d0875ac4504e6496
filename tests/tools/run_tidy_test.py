"""tools/run_tidy.py checks every file, several as one unit unless they define the same name."""
import json
import os
import subprocess
import sys
import unittest

from tree import ROOT, TreeTest

# Stands for both tools of clang. A unit's files are what it includes, or the unit itself. Two files that say "same"
# do not compile together; a file with "bad" has a finding.
FAKE_CLANG = """#!{python}
import pathlib, re, sys
unit = next(word for word in sys.argv if word.endswith(".cc"))
files = re.findall('#include "(.*)"', pathlib.Path(unit).read_text()) or [unit]
same = [file for file in files if "same" in pathlib.Path(file).read_text()]
if sys.argv[0].endswith("clang++"):
    for file in same[1:]:
        print(f"{{file}}:1:5: error: redefinition of 'same'", file=sys.stderr)
    sys.exit(len(same) > 1)
if len(same) > 1:
    print(f"{{same[1]}}:1:5: error: redefinition of 'same' [clang-diagnostic-error]")
    sys.exit(1)
for file in files:
    if "bad" in pathlib.Path(file).read_text():
        print(f"{{file}}:1:5: error: bad [readability-bad]")
"""


class RunTidyTest(TreeTest):
    def run_tidy(self, files):
        for name in ("clang++", "clang-tidy"):
            self.write(f"bin/{name}", FAKE_CLANG.format(python=sys.executable))
            (self.root / "bin" / name).chmod(0o755)
        entries = []
        for name, text in files.items():
            self.write(name, text)
            file = str(self.root.resolve() / name)
            entries.append({"file": file, "command": f"ccache c++ -Isrc -o {name}.o -c {file}"})
        self.write("build/release/compile_commands.json", json.dumps(entries))
        done = subprocess.run([sys.executable, "-B", ROOT / "tools/run_tidy.py", "--root", self.root],
                              env=dict(os.environ, PATH=f"{self.root}/bin:{os.environ['PATH']}"),
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.replace(f"{self.root.resolve()}/", "").splitlines()

    def test_files_of_a_module_are_one_unit(self):
        status, lines = self.run_tidy({"src/a/a.cc": "int a;", "src/a/b.cc": "int b;", "tests/t.cc": "bad"})
        self.assertEqual((status, lines), (0, ["clang-tidy: 2 files in 1 units, 0 findings"]))

    def test_files_that_are_compiled_at_once_are_each_checked(self):
        root = self.root.resolve()
        self.write("apps/a.cc", "int a;")
        self.write("apps/b.cc", "bad")
        status, lines = self.run_tidy({"build/Unity/unity_0_cxx.cxx": f'#include "{root}/apps/a.cc"\n#include "{root}/apps/b.cc"\n'})
        self.assertEqual(lines, ["apps/b.cc:1:5: error: bad [readability-bad]", "clang-tidy: 2 files in 1 units, 1 findings"])
        self.assertEqual(status, 1)

    def test_files_that_define_the_same_name_are_checked_apart(self):
        status, lines = self.run_tidy({"src/a/a.cc": "same", "src/a/b.cc": "same bad", "src/a/c.cc": "bad",
                                       "apps/d.cc": "bad"})
        self.assertEqual(status, 1)
        self.assertEqual(lines, [f"{file}:1:5: error: bad [readability-bad]"
                                 for file in ("apps/d.cc", "src/a/b.cc", "src/a/c.cc")]
                         + ["clang-tidy: 4 files in 3 units, 3 findings"])


if __name__ == "__main__":
    unittest.main()
