#!/usr/bin/env python3
"""Compiles each header of src/ and apps/ alone, so that every header includes what it uses. A header of src/ that its own
.cc includes before anything else is left out: the build has compiled it alone already. Files of apps/ it compiles several
at once.

    tools/check_headers.py [--root DIR] [--jobs N] [--compiler c++]
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

# No -Wpsabi: the kernels' vector types are compiled for their instruction sets only in their own .cc files.
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wno-psabi", "-Werror", "-x", "c++", "-"]


FIRST_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def is_first_in_its_source(header):
    source = header.with_suffix(".cc")
    if not source.is_file():
        return False
    first = FIRST_INCLUDE.search(source.read_text(encoding="utf-8"))
    return first is not None and header.as_posix().endswith("/" + first[1])


def headers_below(root):
    for folder in ("src", "apps"):
        base = root / folder
        if base.is_dir():
            yield from (header for header in sorted(base.rglob("*.h")) if folder == "apps" or not is_first_in_its_source(header))


def compile_alone(root, compiler, header):
    """'' when the header compiles by itself, else the compiler's first lines."""
    text = f'#include "{header}"\n'
    command = [compiler, f"-I{root / 'src'}", f"-I{root}", *FLAGS]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else "\n".join(done.stderr.splitlines()[:6])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    args = parser.parse_args()
    headers = list(headers_below(args.root))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        errors = pool.map(lambda header: compile_alone(args.root, args.compiler, header), headers)
        failed = 0
        for header, error in zip(headers, errors):
            if error:
                failed += 1
                print(f"{header.relative_to(args.root)} does not compile alone:\n{error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
