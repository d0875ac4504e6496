#!/usr/bin/env bash
# Makes build/venv with the packages of tests/clients/requirements.txt and prints the path of its Python.
# Takes no time when it is there already; one that is half made, or whose Python has changed, is made anew.
#
#   tools/python_venv.sh            tries, whatever happened before
#   tools/python_venv.sh NAME       build/venv-NAME of tests/clients/requirements-NAME.txt instead, which names all
#                                   that its packages need: pip has nothing to resolve
#   tools/python_venv.sh once ...   for the tests, several of which ask side by side: an index that could not be
#                                   reached in the last ten minutes is not tried again
#
# Where it cannot, one line on standard error says why and what would help, and the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
once=false
if [ "${1:-}" = once ]; then once=true && shift; fi
name=${1:+-$1}
venv=build/venv$name requirements=tests/clients/requirements$name.txt failure=build/venv$name.failed
no_deps=${name:+--no-deps}
limit_seconds=${VENV_LIMIT_SECONDS:-600}

fail() {
  echo "python_venv: $1; to run it: $2" >&2
  exit 1
}

# What the environment was made from. Nothing while its Python does not run.
made_from() {
  cat "$requirements"
  "$venv/bin/python" -VV 2>/dev/null || echo "no Python"
}

# Settings of pip and proxies decide whether an index can be reached: with others it is tried again.
settings() {
  cat "$requirements"
  { env | grep -iE '^(pip_|[a-z]*_proxy=)' || true; } | sort | cksum
}

why_pip_failed() {
  if grep -qiE 'refused|timed out|timeout|resol|unreachable|proxy|ssl|NewConnection|RemoteDisconnected|reset by peer' "$1"; then
    echo "the package index cannot be reached"
  else
    grep -m 1 '^ERROR: ' "$1" || tail -n 1 "$1"
  fi
}

mkdir -p build
[ -f "$requirements" ] || fail "there is no $requirements" "tools/python_venv.sh with the name of one"
exec 9>"$venv.lock"
flock -w $((limit_seconds + 120)) 9 || fail "$venv.lock is held by another process" "end that process"

if ! cmp -s <(made_from) "$venv/made_from.txt"; then
  python3 -c 'import ensurepip, venv' 2>/dev/null ||
    fail "python3 cannot make virtual environments" "tools/install_packages.sh test, or install python3-venv"
  if $once && [ -n "$(find "$failure" -mmin -10 2>/dev/null)" ] &&
     cmp -s <(settings) <(tail -n +2 "$failure"); then
    head -n 1 "$failure" >&2
    exit 1
  fi
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  rm -rf "$venv"
  # What is imported is compiled then (venv_python.py), which is little of what is there.
  # The children hold the lock too: should this be killed, nobody else begins before they are done.
  if ! timeout -k 10 "$limit_seconds" sh -c '
      python3 -m venv "$1" && exec "$1/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check \
        --no-input --retries 1 --timeout 15 --no-compile $3 -r "$2"' sh "$venv" "$requirements" "$no_deps" >"$log" 2>&1; then
    rm -rf "$venv"
    what="make a package index reachable (pip's settings hold, such as PIP_INDEX_URL)"
    what+=" and run tools/python_venv.sh${name:+ ${name#-}}"
    why="the packages of $requirements cannot be installed: $(why_pip_failed "$log")"
    { echo "python_venv: $why; to run it: $what"; settings; } >"$failure"
    fail "$why" "$what"
  fi
  made_from >"$venv/made_from.txt"
  rm -f "$failure"
fi
echo "$PWD/$venv/bin/python"
