#!/usr/bin/env python3
"""Runs the commands of README.md and shows how long each takes and how long it was silent, on both outputs together.

    tools/time_readme.py [--programs build/release/apps] [--only generate,inspect] [--seconds 60] [--silence 5]

Exits with 1 where a command fails, takes longer than --seconds or says nothing for longer than --silence. Those that
measure a server get one that is started with the demo model. Left out: what needs a downloaded model or several GPUs.
"""
import argparse
import contextlib
import os
import pathlib
import re
import select
import shlex
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEEDS_MORE = ("v2-lite", "all-reduce")


def readme_commands(text):
    """The words of every command of ours in a block of code."""
    for block in re.split(r"^```\w*$", text, flags=re.M)[1::2]:
        for line in block.splitlines():
            line = line.removeprefix("$ ").removeprefix("build/release/apps/")
            if re.match(r"fathom(-bench)? [a-z]", line):
                yield shlex.split(line, comments=True)


def can_run(words):
    return not any(more in words for more in NEEDS_MORE) and words[:2] != ["fathom", "serve"]


def title(words):
    """"fathom bench ops": without what is given to it."""
    return " ".join(words[:next((i for i, word in enumerate(words) if word.startswith("-")), len(words))])


def watch(command, env):
    """(exit status, seconds, longest silence) of a command."""
    start = last = time.monotonic()
    silence = 0
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        pipes = [process.stdout, process.stderr]
        while pipes:
            for pipe in select.select(pipes, [], [])[0]:
                if not os.read(pipe.fileno(), 1 << 16):
                    pipes.remove(pipe)
                now = time.monotonic()
                silence, last = max(silence, now - last), now
        status = process.wait()
    return status, time.monotonic() - start, silence


@contextlib.contextmanager
def server(program, env):
    """The demo model at the port that FATHOM_PORT says, until the block ends."""
    with subprocess.Popen([program, "serve", "--model-path", "demo"], cwd=ROOT, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        try:
            if not process.stdout.readline():
                sys.exit("time_readme: the server did not start")
            yield
        finally:
            process.terminate()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/apps")
    parser.add_argument("--only", type=lambda text: text.split(","), help="words, one of which the command has")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--silence", type=float, default=5)
    args = parser.parse_args()
    commands = list(filter(can_run, readme_commands((ROOT / "README.md").read_text(encoding="utf-8"))))
    if args.only:
        commands = [words for words in commands if set(words) & set(args.only)]
    if not commands:
        sys.exit("time_readme: README.md has no such command")
    failed = False
    env = {**os.environ, "FATHOM_PORT": str(free_port())}
    print("| seconds | longest silence | command |\n|---|---|---|")
    for words in commands:
        with server(args.programs / "fathom", env) if words[0] == "fathom-bench" else contextlib.nullcontext():
            status, seconds, silence = watch([args.programs / words[0], *words[1:]], env)
        wrong = [what for what, is_wrong in ((f"exit status {status}", status != 0), ("too long", seconds > args.seconds),
                                             ("silent", silence > args.silence)) if is_wrong]
        print(f"| {seconds:.1f} | {silence:.1f} | `{title(words)}`{''.join(', ' + what for what in wrong)} |", flush=True)
        failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
