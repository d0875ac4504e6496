#!/usr/bin/env python3
"""Runs clang-tidy over src/ and apps/, several files at a time. CUDA files are left out: Debian's clang reads neither
nvcc's options nor the headers of a current toolkit.

    tools/run_tidy.py [--build build/release] [--jobs N] [--batch N] [FILE ...]

Most of clang-tidy's time goes to the headers that a file includes, so files of one module are read as one translation
unit that includes them all. Files that define the same name go to different units: clang says which. Every file is
checked, whatever its neighbours. A finding is shown once.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FINDING = re.compile(r"^\S.*: (?:warning|error): .*\[.*\]$", re.M)
NOT_COMPILED = "[clang-diagnostic-error"
CLANG_ERROR = re.compile(r"^(\S[^:]*):\d+:\d+: (?:fatal )?error: ", re.M)
UNITY = re.compile(r"/Unity/unity_\d+_cxx\.cxx$")
INCLUDED = re.compile(r'^#include "(.+)"$', re.M)
EXTRA_FLAGS = ["-Wno-unknown-warning-option", "-Wthread-safety"]
CLANG = "clang++"


def flags_of(entry):
    """The compiler's flags of an entry of compile_commands.json, without compiler, input and output."""
    words = shlex.split(entry["command"])
    if pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    flags, skip = [], False
    for word in words[1:]:
        if skip or word in ("-o", "-c"):
            skip = not skip and word == "-o"
            continue
        if word != entry["file"]:
            flags.append(word)
    return flags


def each_file(database):
    """The entries of compile_commands.json, one for each of our files: what CMake compiles several files at once from
    includes them, one a line."""
    for entry in database:
        if not UNITY.search(entry["file"]):
            yield entry
            continue
        words = entry["command"].replace(entry["file"], "UNITY")
        for file in INCLUDED.findall(pathlib.Path(entry["file"]).read_text(encoding="utf-8")):
            yield {**entry, "file": file, "command": words.replace("UNITY", file)}


def batches_of(entries, size):
    """Lists of files that share their flags, as those of a module do, at most `size` each, with these flags."""
    groups = {}
    for entry in sorted(entries, key=lambda entry: entry["file"]):
        groups.setdefault(tuple(flags_of(entry)), []).append(entry["file"])
    for flags, files in groups.items():
        for begin in range(0, len(files), size):
            yield files[begin:begin + size], flags


def run_tool(command, files, flags):
    """Runs a tool of clang's on these files as one translation unit."""
    # The unit lies in a folder of its own: clang-tidy's header filter must not take it for one of ours.
    with tempfile.TemporaryDirectory(prefix="fathom_tidy") as folder:
        unit = files[0]
        if len(files) > 1:
            unit = os.path.join(folder, "unit.cc")
            pathlib.Path(unit).write_text(
                "".join(f'#include "{file}"  // NOLINT\n' for file in files), encoding="utf-8")
        return subprocess.run([*command, unit, *(["--"] if "--quiet" in command else []), *flags, *EXTRA_FLAGS],
                              capture_output=True, text=True, check=False)


def conflicting(files, flags):
    """Files of a unit that define what an earlier one defines, by clang's errors; none = it compiles."""
    if len(files) == 1:
        return []
    done = run_tool([CLANG, "-fsyntax-only", "-ferror-limit=0", "-w"], files, flags)
    if done.returncode == 0:
        return []
    found = set(CLANG_ERROR.findall(done.stderr)) & set(files)
    # An error that names none of them: check each alone.
    return sorted(found) if found and len(found) < len(files) else files[1:]


def tidy(files, flags):
    done = run_tool(["clang-tidy", "--quiet", f"--config-file={ROOT / '.clang-tidy'}"], files, flags)
    if done.returncode != 0 and not FINDING.search(done.stdout):
        return f"{files[0]}: error: clang-tidy failed: {done.stderr.strip()[-500:]} [run_tidy]\n"
    return done.stdout


def run_batch(files, flags):
    """What clang-tidy prints, and how many units it took."""
    output, num_units = "", 0
    while files:
        now, later = files, []
        found = tidy(now, flags)
        num_units += 1
        if len(now) > 1 and NOT_COMPILED in found:
            later = conflicting(files, flags)
            now = [file for file in files if file not in later]
            found = tidy(now, flags)
            num_units += 1
        if len(now) > 1 and NOT_COMPILED in found:  # what is left missed something
            found = "".join(tidy([file], flags) for file in now)
            num_units += len(now)
        output += found
        files = later
    return output, num_units


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--build", type=pathlib.Path, help="default: build/release")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=48, help="files read at once (default 48)")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="only these")
    args = parser.parse_args()
    root = args.root.resolve()
    build = args.build or root / "build/release"
    chosen = {str(file.resolve()) for file in args.files}
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    entries = [entry for entry in each_file(database)
               if entry["file"].startswith((f"{root}/src/", f"{root}/apps/")) and not entry["file"].endswith(".cu")
               and (not chosen or entry["file"] in chosen)]
    if not entries or (chosen and len(entries) < len(chosen)):
        print(f"{build}/compile_commands.json has {len(entries)} of these files", file=sys.stderr)
        return 2
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(lambda batch: run_batch(*batch), batches_of(entries, args.batch)))
    findings = sorted(set(FINDING.findall("".join(output for output, _ in done))))
    for finding in findings[:100]:
        print(finding)
    print(f"clang-tidy: {len(entries)} files in {sum(units for _, units in done)} units, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
