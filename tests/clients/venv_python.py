"""Continues a test under the Python of build/venv, which has the packages of requirements.txt.

    import venv_python
    venv_python.enter()      # before importing selenium or openai
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # what ctest shows as "Skipped"


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(SKIPPED)


def enter():
    if os.environ.get("FATHOM_IN_VENV"):
        return
    found = subprocess.run([ROOT / "tools" / "python_venv.sh"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        skip(found.stderr.strip())
    python = found.stdout.strip()
    os.execve(python, [python, "-B", *sys.argv], {**os.environ, "FATHOM_IN_VENV": "1"})
