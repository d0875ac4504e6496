"""Continues a test under the Python of build/venv, which has the packages of requirements.txt.

    import venv_python
    venv_python.enter()      # before importing selenium or openai; where they cannot be had, the file is skipped
"""
import os
import pathlib
import subprocess
import sys

from skipping import skip

ROOT = pathlib.Path(__file__).resolve().parents[2]


def enter():
    if os.environ.get("FATHOM_IN_VENV"):
        return
    found = subprocess.run([ROOT / "tools" / "python_venv.sh", "once"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        reason, _, what = found.stderr.strip().removeprefix("python_venv: ").partition("; to run it: ")
        skip(reason, what or "tools/python_venv.sh says what is missing")
    python = found.stdout.strip()
    os.execve(python, [python, "-B", *sys.argv], {**os.environ, "FATHOM_IN_VENV": "1"})
