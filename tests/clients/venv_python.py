"""Continues a test under the Python of build/venv, which has the packages of requirements.txt.

    import venv_python
    venv_python.enter()           # before importing selenium or openai; where they cannot be had, the file is skipped
    venv_python.enter("agents")   # build/venv-agents, requirements-agents.txt
    venv_python.packages("torch")   # the folder of packages of build/venv-torch, for PYTHONPATH
"""
import os
import pathlib
import subprocess
import sys

from skipping import skip

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python_of(name):
    arguments = ["once", name] if name else ["once"]
    found = subprocess.run([ROOT / "tools" / "python_venv.sh", *arguments], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        reason, _, what = found.stderr.strip().removeprefix("python_venv: ").partition("; to run it: ")
        skip(reason, what or "tools/python_venv.sh says what is missing")
    return found.stdout.strip()


def packages(name):
    return next(pathlib.Path(python_of(name)).parents[1].glob("lib/python3*/site-packages"))


def enter(name=""):
    if os.environ.get("FATHOM_IN_VENV"):
        return
    python = python_of(name)
    # What is compiled at the first import stays beside the packages, none of it beside the tests.
    compiled = str(pathlib.Path(python).parents[1] / "compiled")
    environment = {**os.environ, "FATHOM_IN_VENV": "1", "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    os.execve(python, [python, *sys.argv], environment)
