"""Mistakes of a first hour: each is one line that names the thing and the next step. And what a newcomer sees of a start."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from serving_process import DEMO, PATIENCE_SECONDS, PROGRAM, ROOT, environment, occupied_port

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 4302350184\n"
SMALL = ["--device", "cpu", "--max-total-tokens", "8192", "--chunked-prefill-size", "256", "--cpu-threads", "2"]


def fathom(*args, env=None, cwd=None):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, check=False, cwd=cwd,
                          timeout=PATIENCE_SECONDS, env=environment(env))


class MistakeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "model"
        shutil.copytree(DEMO, self.model)

    def told(self, status, parts, *args, **more):
        """The line that the program says, besides where the help is."""
        done = fathom(*args, **more)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("fathom: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        for part in parts:
            self.assertIn(part, lines[0])

    def serve(self, model, *args):
        return ["serve", "--port", "0", "--log-level", "error", "--model-path", model, *SMALL, *args]

    def test_a_repository_is_no_directory(self):
        self.told(1, ["deepseek-ai/DeepSeek-V2-Lite", "hf download deepseek-ai/DeepSeek-V2-Lite --local-dir DIR"],
                  "serve", "deepseek-ai/DeepSeek-V2-Lite", env={"HF_HOME": str(self.folder)})

    def test_a_gguf_file_is_none_either(self):
        path = self.folder / "model.gguf"
        path.write_bytes(b"GGUF")
        self.told(1, ["GGUF", "give the directory of a Hugging Face checkpoint"], *self.serve(path))

    def test_pointers_of_git_lfs(self):
        for file in self.model.glob("*.safetensors"):
            file.write_text(POINTER, encoding="utf-8")
        self.told(1, ["git lfs pull"], *self.serve(self.model))

    def test_the_root_of_the_hugging_face_cache(self):
        (self.folder / "hub/models--acme--demo/snapshots").mkdir(parents=True)
        self.told(1, ["is the Hugging Face cache", "models--acme--demo"], *self.serve(self.folder / "hub"))

    def test_half_a_download(self):
        shards = sorted(self.model.glob("*.safetensors"))
        shards[-1].unlink()
        self.told(1, [shards[-1].name, "download"], *self.serve(self.model))

    def test_weights_that_are_too_large(self):
        config = json.loads((ROOT / "models/configs/deepseek-v3/config.json").read_text(encoding="utf-8"))
        (self.model / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.told(1, ["weights larger than memory", "fathom inspect"], *self.serve(self.model, "--load-format", "dummy"))

    def test_a_misspelt_flag(self):
        self.told(2, ["--max-runing-requests", "the nearest is --max-running-requests"],
                  "serve", "-m", "demo", "--max-runing-requests", "8")
        self.told(2, ["FATHOM_MAX_RUNING_REQUESTS", "FATHOM_MAX_RUNNING_REQUESTS"], "serve", "-m", "demo",
                  env={"FATHOM_MAX_RUNING_REQUESTS": "8"})

    def test_a_port_in_use(self):
        listener, port = occupied_port()
        with listener:
            self.told(1, [f"127.0.0.1:{port}", "Address already in use", "--port"], "serve", "-m", self.model, "--port", port, "--log-level", "error", *SMALL)

    def test_no_model(self):
        self.told(2, ["--model-path is required", "--model-path demo"], "serve")
        self.told(2, ["--model-path is required", "--model-path demo"], "generate", "-p", "Hello")

    def test_a_wrong_file(self):
        self.told(1, ["config.json is not a directory", "give the directory that holds"], *self.serve(self.model / "config.json"))
        empty = self.folder / "empty"
        empty.mkdir()
        self.told(1, [str(empty), "config.json"], *self.serve(empty))

    def test_random_weights_without_a_tokenizer(self):
        for file in self.model.iterdir():
            if file.name != "config.json":
                file.unlink()
        self.told(1, ["tokenizer.json", "--load-format dummy"], *self.serve(self.model, "--load-format", "dummy"))
        done = fathom("inspect", "-m", self.model, "--load-format", "dummy", "--device", "cpu")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_subcommand_that_is_none(self):
        self.told(2, ['no subcommand "serv"', "serve"], "serv", "-m", "demo")

    def test_a_value_says_where_it_came_from(self):
        self.told(2, ["--port", "70000", "set by FATHOM_PORT"], "serve", "-m", "demo", env={"FATHOM_PORT": "70000"})


class Terminal:
    """The program with a terminal as its standard streams, until a text is seen."""

    def __init__(self, *args):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.process = subprocess.Popen([PROGRAM, *map(str, args)], stdin=slave, stdout=slave, stderr=slave,  # pylint: disable=consider-using-with
                                        env=environment())
        os.close(slave)

    def read_until(self, wanted):
        text, deadline = "", time.monotonic() + PATIENCE_SECONDS
        while wanted not in text and time.monotonic() < deadline:
            if select.select([self.master], [], [], 1)[0]:
                try:
                    text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    break
        return text

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_SECONDS)
        os.close(self.master)


class StartTest(unittest.TestCase):
    def test_on_a_terminal_a_start_is_a_banner(self):
        terminal = Terminal("serve", "-m", "demo", "--port", 0, *SMALL)
        text = terminal.read_until("Fathom is ready: ")
        terminal.end()
        lines = [line for line in re.sub(r"\r[^\n]*\x1b\[K", "", text).splitlines() if line.strip()]
        self.assertLessEqual(len(lines), 4, text)
        self.assertNotIn("level=", text)
        self.assertRegex(text, r"fathom \d+\.\d+\.\d+ \(commit [^)]+\): demo on .* CPU, .* 8192 tokens of cache")
        self.assertRegex(text, r"Open http://127\.0\.0\.1:\d+ to chat")

    def test_at_level_error_a_good_start_says_nothing(self):
        process = subprocess.Popen([PROGRAM, "serve", "-m", "demo", "--port", "0", "--log-level", "error", *SMALL],  # pylint: disable=consider-using-with
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        self.assertTrue(process.stdout.readline().startswith("Fathom is ready: "))
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual((process.returncode, errors), (0, ""))

    def test_a_default_start_has_no_warning_and_no_line_of_all_settings(self):
        process = subprocess.Popen([PROGRAM, "serve", "-m", "demo", "--port", "0", *SMALL],  # pylint: disable=consider-using-with
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        self.assertTrue(process.stdout.readline().startswith("Fathom is ready: "))
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        self.assertNotIn("level=warning", errors)
        self.assertNotIn("event=settings", errors)
        self.assertLess(max(map(len, errors.splitlines())), 700)

    def test_foreign_flags_are_named_and_the_server_starts(self):
        done = fathom("generate", "--model", "demo", "--trust-remote-code", "--max-model-len", "512", "-p", "Hello", "-n", "2",
                      "--enable-flashinfer-mla", "--gpu-memory-utilization", "0.5", *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split()[1] for line in done.stderr.splitlines() if line.startswith("fathom: ")],
                         ["--trust-remote-code", "--enable-flashinfer-mla", "--gpu-memory-utilization"])

    def test_doctor_says_what_would_run(self):
        done = fathom("doctor", "--device", "cpu", env={"FATHOM_API_KEY": "sk-secret-12345", "FATHOM_PORT": "30001"})
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("program", "commit", "glibc", "memory", "open files", "FATHOM_PORT", "runs on"):
            self.assertIn(part, done.stdout)
        self.assertNotIn("secret", done.stdout)
        value = json.loads(fathom("doctor", "--json", "--device", "cpu").stdout)
        self.assertRegex(value["runs_on"], "CPU")
        # Without a GPU it says why, and that nothing runs where one was asked for.
        if not list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
            done = fathom("doctor", "--device", "cuda")
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, r"PROBLEM +--device cuda: .*")

    def test_the_benches_work_from_any_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            done = fathom("eval", "gsm8k", "-m", "demo", "--num-questions", "4", *SMALL[:2], cwd=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Accuracy: 1.000", done.stdout)

    def test_no_command_is_silent_for_five_seconds(self):
        # One prompt that the reference computes for longer than this.
        command = [PROGRAM, "bench", "one-batch", "-m", "demo", "--device", "cpu", "--cpu-backend", "reference", "--dequantize",
                   "--dtype", "float32", "--input-len", "4096", "--output-len", "2"]

        def run(*more):
            process = subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,  # pylint: disable=consider-using-with
                                       env=environment())
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process
        silent = run("--log-level", "error")
        process, said, last, times = run(), [], time.monotonic(), []
        while len(said) < 2:
            line = process.stderr.readline()
            self.assertTrue(line, "it ended before it had said anything")
            times.append(time.monotonic() - last)
            last += times[-1]
            if line.startswith("computing a prompt of 4096 tokens, "):
                said.append(line)
        self.assertRegex(said[1], r"^computing a prompt of 4096 tokens, \d+ s so far\n$")
        self.assertLess(max(times), 5)
        self.assertIsNone(silent.poll())
        silent.kill()
        self.assertEqual(silent.communicate()[1], "")


class ReadmeTest(unittest.TestCase):
    def test_the_quick_commands_run_as_they_stand(self):
        def time_readme(*args):
            return subprocess.run([ROOT / "tools/time_readme.py", "--programs", pathlib.Path(PROGRAM).parent, "--only",
                                   "doctor,inspect,tokenize", *args], capture_output=True, text=True, check=False, env=environment())
        done = time_readme("--seconds", str(PATIENCE_SECONDS), "--silence", str(PATIENCE_SECONDS))
        self.assertEqual((done.returncode, done.stdout.count("| `fathom ")), (0, 3), done.stdout + done.stderr)
        self.assertRegex(time_readme("--seconds", "0").stdout, r"(?m)^\| .* \| `fathom inspect`, too long \|$")
        self.assertRegex(time_readme("--silence", "0").stdout, r"(?m)^\| .* \| `fathom inspect`, silent \|$")


if __name__ == "__main__":
    unittest.main()
