"""Objects are compiled as cmake/FathomHardening.cmake says, those of CUDA code too."""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402

BUILD = pathlib.Path(os.environ["FATHOM_BUILD_DIR"])
IS_X86 = platform.machine() == "x86_64"


def commands():
    """(source, command, object) of everything that the build compiles."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8")):
        output = re.search(r" -o (\S+)", entry["command"])
        yield entry["file"], entry["command"], pathlib.Path(entry["directory"], output[1])


class HardeningTest(unittest.TestCase):
    def test_every_command_asks_for_it(self):
        wanted = ["-fstack-protector-strong"] + (["-fstack-clash-protection", "-fcf-protection"] if IS_X86 else [])
        lacking = [(source, flag) for source, command, _ in commands() for flag in wanted if flag not in command]
        self.assertEqual(lacking, [])

    @unittest.skipUnless(IS_X86 and shutil.which("readelf"), skipping.because("there is no readelf", "install binutils"))
    def test_every_object_has_landing_pads_and_may_have_a_shadow_stack(self):
        objects = [str(path) for _, _, path in commands() if path.exists()]
        self.assertGreater(len(objects), 0)
        # The name of a file comes before what is said of it.
        said = subprocess.run(["readelf", "-n", *objects], capture_output=True, text=True, check=True).stdout
        parts = re.split(r"^File: (.*)$", said, flags=re.MULTILINE)[1:]
        marked = dict(zip(parts[::2], parts[1::2]))
        self.assertEqual([name for name in objects if "IBT, SHSTK" not in marked.get(name, "")], [])


if __name__ == "__main__":
    skipping.main()
