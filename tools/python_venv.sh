#!/usr/bin/env bash
# Makes build/venv with the packages of tests/clients/requirements.txt and prints the path of its Python.
# Takes no time when it is there already. Without the network, or without python3-venv, it says why on
# standard error and fails; the tests that need it then skip.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv requirements=tests/clients/requirements.txt

mkdir -p build
exec 9>build/venv.lock
flock 9  # tests start this side by side

if ! cmp -s "$requirements" "$venv/installed.txt"; then
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check \
    --retries 1 --timeout 20 -r "$requirements"; } >"$log" 2>&1; then
    echo "python_venv: cannot install $requirements: $(tail -n 1 "$log")" >&2
    exit 1
  fi
  cp "$requirements" "$venv/installed.txt"
fi
echo "$PWD/$venv/bin/python"
