#!/usr/bin/env python3
"""Makes a wheel of an installed tree: programs and demo model inside, and a console command for each program that
runs it in its place. No Python code serves anything.

    tools/package/wheel.py --tree build/package/fathom-0.2.0-linux-x86_64 --version 0.2.0 --out build/package/wheel
"""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import time
import zipfile

NAME = "fathom_server"
PROGRAMS = ("fathom", "fathom-bench")
ENTRY = '''"""Runs the native programs that this package carries, in place of the Python process."""
import os
import pathlib
import sys


def _run(name):
    program = str(pathlib.Path(__file__).resolve().parent / "bin" / name)
    os.execv(program, [program, *sys.argv[1:]])


def fathom():
    _run("fathom")


def fathom_bench():
    _run("fathom-bench")
'''
SUMMARY = "OpenAI-compatible server for the DeepSeek family of models, one native program"


class Wheel:
    def __init__(self, path):
        stamp = max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315532800)  # zip begins in 1980
        self.time = time.gmtime(stamp)[:6]
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.record = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, self.time)
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, info_folder):
        self.record.append(f"{info_folder}/RECORD,,")
        self.zip.writestr(zipfile.ZipInfo(f"{info_folder}/RECORD", self.time), "\n".join(self.record) + "\n")
        self.zip.close()


def metadata(version, readme):
    return (f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {version}\nSummary: {SUMMARY}\n"
            f"License: Apache-2.0\nRequires-Python: >=3.7\nDescription-Content-Type: text/markdown\n\n{readme}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tag = f"py3-none-linux_{platform.machine()}"
    wheel = Wheel(args.out / f"{NAME}-{args.version}-{tag}.whl")
    info = f"{NAME}-{args.version}.dist-info"
    wheel.add(f"{NAME}/__init__.py", ENTRY.encode())
    for program in PROGRAMS:
        wheel.add(f"{NAME}/bin/{program}", (args.tree / "bin" / program).read_bytes(), 0o755)
    for folder in (args.tree / "share/fathom/models", args.tree / "share/fathom/deploy"):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            wheel.add(f"{NAME}/{path.relative_to(args.tree)}", path.read_bytes())
    doc = args.tree / "share/doc/fathom"
    wheel.add(f"{info}/LICENSE", (doc / "LICENSE").read_bytes())
    wheel.add(f"{info}/sboms/fathom.spdx.json", (doc / "sbom.spdx.json").read_bytes())
    wheel.add(f"{info}/METADATA", metadata(args.version, (doc / "README.md").read_text(encoding="utf-8")).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fathom\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    commands = "".join(f"{name} = {NAME}:{name.replace('-', '_')}\n" for name in PROGRAMS)
    wheel.add(f"{info}/entry_points.txt", f"[console_scripts]\n{commands}".encode())
    wheel.close(info)


if __name__ == "__main__":
    main()
