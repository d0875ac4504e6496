#!/usr/bin/env python3
"""Whether the GPU's machine code differs from that of another commit: what a clean-up of kernels must not change.

    tools/compare_device_code.py COMMIT [--build build/release] [--jobs N]

Compiles each CUDA file that may read a source changed since COMMIT, twice: as it stands here, uncommitted changes
included, and as in COMMIT, with the flags of the build folder. Compares instructions, constants and initial values,
kernel by kernel, wherever a kernel's file is. Exit status 0: the same, 1: other code, listed. Needs nvcc, no GPU.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tarfile
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
# What a kernel consists of. Debug information, and with it numbers of lines, lies in other sections.
CODE = re.compile(r"\.text\.|\.nv\.constant|\.nv\.global|\.nv\.shared\.(?!reserved)")
UNNAMED = re.compile(r"(?<!\d)(\d+)(?=_GLOBAL__N_)")


def git(root, *arguments):
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare_device_code: git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def unpack(root, commit, folder):
    archive = folder / "tree.tar"
    git(root, "archive", "-o", archive, commit, "src")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)


def changed_sources(root, other):
    """Paths below src whose text differs, or that one side lacks."""
    names = {path.relative_to(tree) for tree in (root, other) for path in (tree / "src").rglob("*") if path.is_file()}
    return {name for name in names if read(root / name) != read(other / name)}


def read(path):
    return path.read_bytes() if path.exists() else None


def sources_of(tree, name, seen):
    """`name` and what it includes of the tree, by the text of its include lines."""
    if name in seen or not (tree / name).exists():
        return seen
    seen.add(name)
    for included in INCLUDE.findall((tree / name).read_text(encoding="utf-8")):
        for folder in (pathlib.Path("src"), name.parent):
            sources_of(tree, pathlib.Path(os.path.normpath(folder / included)), seen)
    return seen


def flags_of(build):
    """nvcc and the flags of one CUDA file of the build, without folders of the tree: all files have the same."""
    commands = build / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"compare_device_code: {commands} is missing; make build makes it")
    for entry in json.loads(commands.read_text()):
        tree, below, _ = entry["file"].rpartition("/src/cuda/")
        if not below or not entry["file"].endswith(".cu"):
            continue
        words = shlex.split(entry["command"])
        words = words[next(i for i, word in enumerate(words) if word.endswith("nvcc")):]
        drop = {words.index(flag) + more for flag in ("-o", "-c") for more in (0, 1)}
        return [word for i, word in enumerate(words) if i not in drop and not word.startswith(f"-I{tree}/")]
    sys.exit(f"compare_device_code: {commands} compiles no CUDA file; is nvcc on this machine?")


def compile_cubin(flags, tree, name, out):
    words = [*flags, f"-I{tree}/src", "-cubin", "-o", out, tree / name]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare_device_code: {tree / name} does not compile:\n{done.stderr}")


def sections(image):
    """(name, content) of each section of an ELF file; of those without content in the file, their size."""
    offset, = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", image, offset + 64 * i) for i in range(count)]
    for name, kind, _, _, at, size in headers:
        start = headers[names][4] + name
        no_bits = kind == 8
        yield image[start:image.index(b"\0", start)].decode(), size if no_bits else image[at:at + size]


def plain_name(name):
    """A mangled name without what nvcc adds to unnamed namespaces, which a hash of the file's path is part of."""
    if found := UNNAMED.search(name):
        return name[:found.start()] + "12_GLOBAL__N_1" + plain_name(name[found.end() + int(found[1]):])
    return name


def add_code(image, code):
    for name, content in sections(image):
        if CODE.match(name):
            code[plain_name(name)].append(content)


def device_code(flags, tree, names, jobs):
    """Content by section of all these files of a tree; more than one where names repeat."""
    code = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        outs = [pathlib.Path(folder) / f"{i}.cubin" for i in range(len(names))]
        for done in [pool.submit(compile_cubin, flags, tree, *pair) for pair in zip(names, outs)]:
            done.result()
        for out in outs:
            add_code(out.read_bytes(), code)
    return {name: sorted(contents, key=repr) for name, contents in code.items()}


def differences(before, now):
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield "gone" if name not in now else "new" if name not in before else "other", name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=pathlib.Path, help="default: build/release of the tree")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    flags = flags_of(arguments.build or root / "build" / "release")
    with tempfile.TemporaryDirectory() as folder:
        other = pathlib.Path(folder)
        unpack(root, arguments.commit, other)
        changed = changed_sources(root, other)
        files = [[name for name in sorted(path.relative_to(tree) for path in (tree / "src").rglob("*.cu"))
                  if sources_of(tree, name, set()) & changed] for tree in (other, root)]
        print(f"{len(changed)} sources differ, {len(set(files[0]) | set(files[1]))} CUDA files read them", flush=True)
        before, now = (device_code(flags, tree, names, arguments.jobs)
                       for tree, names in zip((other, root), files))
    found = list(differences(before, now))
    for kind, name in found:
        print(f"{kind}: {name}")
    kernels = sum(len(contents) for name, contents in now.items() if name.startswith(".text."))
    print(f"{kernels} kernels, {len(found)} sections differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
