#!/usr/bin/env python3
"""Prints a stage of a Dockerfile as a shell script, to run its steps without Docker.

    tools/package/dockerfile_steps.py deploy/Dockerfile build --build-arg CUDA=OFF      a script for bash
    tools/package/dockerfile_steps.py deploy/Dockerfile run --entry                     ENTRYPOINT and CMD, a word a line

The stage without a name is called `run`. The tree is expected at /context, other stages at /stages/NAME. What it does
not know is an error, so that no step is left out unseen.
"""
import argparse
import json
import pathlib
import re
import shlex
import sys

WITHOUT_STEPS = ("EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "USER", "ENTRYPOINT", "CMD")


def instructions(text):
    """[(name, rest)], continued lines joined, comments gone."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*#", line)]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    for line in joined.splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def stage_of(text, wanted):
    found, current = [], None
    for name, rest in instructions(text):
        if name == "FROM":
            match = re.search(r"\bAS (\S+)$", rest, re.I)
            current = match[1] if match else "run"
        elif current == wanted:
            found.append((name, rest))
    if not found:
        sys.exit(f"dockerfile_steps: no stage {wanted}")
    return found


def copy_step(rest):
    source_root = "/context"
    words = shlex.split(rest)
    if words[0].startswith("--from="):
        source_root = "/stages/" + words.pop(0).removeprefix("--from=")
    *sources, target = words
    yield f"mkdir -p {shlex.quote(target)}"
    for source in sources:
        path = f"{source_root}/{source}".replace("//", "/")
        # As Docker does: of a folder what is in it.
        yield f"if [ -d {shlex.quote(path)} ]; then cp -a {shlex.quote(path)}/. {shlex.quote(target)}/; " \
              f"else cp -a {shlex.quote(path)} {shlex.quote(target)}; fi"


def steps(stage, build_args):
    yield "set -eux"
    for name, rest in stage:
        if name == "ARG":
            key, _, value = rest.partition("=")
            yield f"export {key}={shlex.quote(build_args.get(key, value))}"
        elif name == "ENV":
            yield f"export {rest}"
        elif name == "WORKDIR":
            yield f"mkdir -p {rest} && cd {rest}"
        elif name == "COPY":
            yield from copy_step(rest)
        elif name == "RUN":
            yield f"({rest}) || exit 1"  # each in a shell of its own
        elif name not in WITHOUT_STEPS:
            sys.exit(f"dockerfile_steps: does not know {name}")


def entry(stage):
    found = dict(item for item in stage if item[0] in ("ENTRYPOINT", "CMD"))
    return json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile", type=pathlib.Path)
    parser.add_argument("stage")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--entry", action="store_true")
    args = parser.parse_args()
    stage = stage_of(args.dockerfile.read_text(encoding="utf-8"), args.stage)
    if args.entry:
        print("\n".join(entry(stage)))
    else:
        print("\n".join(steps(stage, dict(pair.split("=", 1) for pair in args.build_arg))))


if __name__ == "__main__":
    main()
