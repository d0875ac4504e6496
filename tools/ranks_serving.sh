#!/bin/bash
# What the tests of a server demand of one rank (answers, streams, structures, aborts, pauses, drains, counters, clients
# of others), on two ranks, on two lanes, and on two lanes of two. Each that fails is shown, and the others run; with
# one the status is 1. Some ten minutes on two cores.
#
#   tools/ranks_serving.sh [build folder] [pattern of test files; all of them]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build/release}
pattern=${2:-.}
FATHOM_PROGRAM=$(realpath "$build/apps/fathom")
export FATHOM_PROGRAM
failed=0
files=(apps/{drain,serve_score,serve_operator,serve_start,serve_access,constrained_output,load,hostile_bodies,dear_requests}
  clients/{openai_client,openai_responses,anthropic_client,sglang_bench_replay})

# check NAME COMMAND...: its last line, or all of it where it fails.
check() {
  local name=$1 output
  shift
  [[ $name =~ $pattern ]] || return 0
  if output=$("$@" 2>&1 </dev/null); then
    echo "ok      $name ($(grep -E '^Ran |PASSED' <<<"$output" | tail -1))"
  elif [[ $output == SKIPPED:* ]]; then
    echo "skipped $name (${output#SKIPPED: })"
  else
    echo "FAILED  $name"
    echo "$output"
    failed=1
  fi
}

for sizes in "2 1" "1 2" "2 2"; do
  read -r ranks lanes <<<"$sizes"
  flags="--tp-size $((ranks * lanes))"
  [ "$lanes" = 1 ] || flags="$flags --enable-dp-attention --dp-size $lanes"
  echo "== $flags"
  export FATHOM_TEST_FLAGS=$flags FATHOM_TEST_LANES=$lanes FATHOM_TEST_RANKS_OF_LANE=$ranks
  check serve "$build/tests/test_serve" --gtest_brief=1
  for file in "${files[@]}"; do
    check "$file" python3 "tests/${file}_test.py"
  done
done
exit "$failed"
