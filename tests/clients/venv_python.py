"""Continues a test under the Python of build/venv, which has the packages of requirements.txt.

    import venv_python
    venv_python.enter()           # before importing selenium or openai; where they cannot be had, the file is skipped
    venv_python.enter("agents")   # build/venv-agents, requirements-agents.txt
    venv_python.enter("evals", on_request=True)   # packages too large for every test run: only with `make clients`
"""
import os
import pathlib
import subprocess
import sys

from skipping import skip

ROOT = pathlib.Path(__file__).resolve().parents[2]


def enter(name="", on_request=False):
    if os.environ.get("FATHOM_IN_VENV"):
        return
    if on_request and not os.environ.get("FATHOM_ALL_CLIENTS"):
        skip(f"the packages of requirements-{name}.txt are too large for every test run", "make clients")
    arguments = ["once", name] if name else ["once"]
    found = subprocess.run([ROOT / "tools" / "python_venv.sh", *arguments], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        reason, _, what = found.stderr.strip().removeprefix("python_venv: ").partition("; to run it: ")
        skip(reason, what or "tools/python_venv.sh says what is missing")
    python = found.stdout.strip()
    # What is compiled at the first import stays beside the packages, none of it beside the tests.
    compiled = str(pathlib.Path(python).parents[1] / "compiled")
    environment = {**os.environ, "FATHOM_IN_VENV": "1", "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    os.execve(python, [python, *sys.argv], environment)
