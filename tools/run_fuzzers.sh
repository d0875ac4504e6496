#!/usr/bin/env bash
# Runs every libFuzzer program of a build for some seconds each, starting from the corpus in the tree and with the
# dictionary of that name, where there is one.
# Findings are left in the build folder; the corpus in the tree is only read.
#
#   tools/run_fuzzers.sh build/fuzz/tests/fuzz SECONDS JOBS
set -euo pipefail
folder=$1 seconds=$2 jobs=$3
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$folder"

shopt -s nullglob
targets=(*_fuzz)
[ ${#targets[@]} -gt 0 ] || { echo "run_fuzzers: no fuzz targets in $folder" >&2; exit 1; }

fuzz_one() {
  local target=$1 name=${1%_fuzz}
  local dictionary=$root/tests/fuzz/$name.dict options=()
  [ ! -e "$dictionary" ] || options+=(-dict="$dictionary")
  mkdir -p "corpus/$name" "findings/$name"
  if ! "./$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="findings/$name/" "${options[@]}" "corpus/$name" "$root/tests/fuzz/corpus/$name" \
      >"$name.log" 2>&1; then
    echo "FAILED  $name: see $PWD/$name.log"
    tail -n 30 "$name.log"
    return 1
  fi
  echo "ok      $name: $(awk '/number_of_executed_units/ {print $2}' "$name.log") runs in $seconds s, 0 findings"
}
export -f fuzz_one
export seconds root
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz_one "$1"' _ {}
