#!/usr/bin/env bash
# The style checks behind `make check`: runs all of them, then fails when any did.
# Needs build/release/compile_commands.json (any configured release preset).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=()
run() {
  local name=$1
  shift
  local start=$SECONDS
  if "$@"; then
    echo "ok      $name ($((SECONDS - start)) s)"
  else
    echo "FAILED  $name"
    failed+=("$name")
  fi
}

format() { git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs -r clang-format --dry-run --Werror; }
dependencies() { python3 tools/check_deps.py; }
sizes() { python3 tools/check_size.py; }
documents() { python3 tools/check_docs.py; }
kernels() { python3 tools/check_kernels.py; }
lists() { python3 tools/check_lists.py; }
headers() { python3 tools/check_headers.py; }
tidy() { python3 tools/run_tidy.py --jobs "$(tools/build_jobs.sh)"; }

run format format
run dependencies dependencies
run sizes sizes
run documents documents
run kernels kernels
run lists lists
run headers headers
run clang-tidy tidy

if [ ${#failed[@]} -gt 0 ]; then
  echo "style: failed: ${failed[*]}"
  exit 1
fi
