"""What `cmake --install` puts in place: programs that find the demo model and need nothing but OpenSSL and the C library,
manual pages and completions that follow the flags."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402

PROGRAM = os.environ["FATHOM_PROGRAM"]
BUILD = pathlib.Path(os.environ["FATHOM_BUILD_DIR"])
BENCH = pathlib.Path(PROGRAM).with_name("fathom-bench")
# Of systems with glibc 2.34; the rest of what programs use is inside.
LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libssl.so.3", "libcrypto.so.3", "libdl.so.2", "librt.so.1",
             "libpthread.so.0"}


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        cls.prefix = pathlib.Path(cls.folder.name, "a prefix")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix], check=True, capture_output=True,
                       env={**os.environ, "DESTDIR": ""})

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_installed(self, *args):
        return subprocess.run([self.prefix / "bin/fathom", *args], capture_output=True, text=True, check=False,
                              cwd=self.folder.name)

    def test_the_demo_model_is_found_from_any_folder(self):
        done = self.run_installed("inspect", "-m", "demo", "--device", "cpu")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(str(self.prefix / "share/fathom/models/demo"), done.stdout)

    @unittest.skipUnless(shutil.which("objdump"), skipping.because("there is no objdump", "install binutils"))
    def test_the_programs_need_few_libraries_and_no_new_c_library(self):
        for program in ("fathom", "fathom-bench"):
            path = self.prefix / "bin" / program
            headers = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
            needed = set(re.findall(r"NEEDED +(\S+)", headers))
            if any("san" in name for name in needed):
                self.skipTest(skipping.because("a sanitizer's build brings libraries of its own", "make test"))
            self.assertEqual({name for name in needed - LIBRARIES if not name.startswith("ld-linux")}, set())
            symbols = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
            versions = {tuple(map(int, text.split("."))) for text in re.findall(r"GLIBC_(2\.\d+)", symbols)}
            self.assertLessEqual(max(versions), (2, 34))

    def complete(self, *words):
        """What bash offers for the last word."""
        script = (f'source "{self.prefix}/share/bash-completion/completions/fathom"; COMP_WORDS=("$@"); '
                  'COMP_CWORD=$(($# - 1)); _fathom; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", "fathom", *words], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split())

    def test_bash_completes_commands_flags_and_values(self):
        self.assertLessEqual({"serve", "generate", "doctor", "--version"}, self.complete(""))
        self.assertEqual(self.complete("ev"), {"eval"})
        self.assertIn("gsm8k", self.complete("eval", ""))
        self.assertEqual(self.complete("serve", "--max-running"), {"--max-running-requests"})
        self.assertEqual(self.complete("serve", "--device", ""), {"auto", "cpu", "cuda"})
        self.assertIn("--num-questions", self.complete("eval", "gsm8k", "--num"))

    def test_the_manual_pages_have_every_command_and_flag(self):
        for program, path in (("fathom", PROGRAM), ("fathom-bench", BENCH)):
            text = (self.prefix / f"share/man/man1/{program}.1").read_text(encoding="utf-8").replace("\\-", "-")
            shown = subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout
            for command in re.findall(r"^  ([a-z][\w-]*)  ", shown.partition("Subcommands:")[2], re.M):
                self.assertTrue(f"\\fB{program} {command}" in text, command)
                flags = subprocess.run([path, command, "--help"], capture_output=True, text=True, check=True).stdout
                for flag in re.findall(r"^  (?:-\w,)?(--[a-z][\w-]*)", flags, re.M):
                    self.assertTrue(f"\\fB{flag}\\fR" in text, flag)
            zsh = (self.prefix / f"share/zsh/site-functions/_{program}").read_text(encoding="utf-8")
            self.assertTrue(zsh.startswith(f"#compdef {program}\n"))


if __name__ == "__main__":
    skipping.main()
