#!/usr/bin/env bash
# Everything that needs a Hopper GPU, in one run: the operator suite, whole models against the CPU and against
# references, the engine's and the server's tests, accuracy on the demo model, speed. Ends with a line per part and
# `N passed, N failed`.
#
#   tools/gpu_tests.sh [--out DIR] [--only PART,...]        # parts: operators models engine server accuracy memory
#                                                           #        serving v2-lite v3-rank
#
# Takes the programs from build/release, or from FATHOM_BIN_DIR where they were built on another machine (they lie in
# apps/ and tests/ there). Logs go to DIR, build/gpu-tests unless told otherwise.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

out=build/gpu-tests
only=
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
bin=${FATHOM_BIN_DIR:-build/release}
fathom=$bin/apps/fathom
demo=models/demo
export FATHOM_SOURCE_DIR=$PWD FATHOM_PROGRAM=$fathom FATHOM_BUILD_DIR=$bin
mkdir -p "$out"
passed=0
failed=()

wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

# part NAME COMMAND...: runs it with its log in DIR/NAME.log.
part() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$out/$name.log" 2>&1; then
    echo "ok      $name ($((SECONDS - start)) s)"
    passed=$((passed + 1))
  else
    echo "FAILED  $name ($((SECONDS - start)) s): $out/$name.log"
    failed+=("$name")
  fi
}

# The oracles run on the host, so the suite is cut into shards that share the GPU.
shards() {
  local filter=$1 program=$2 shard status=0 pids=()
  for shard in 0 1 2 3 4 5 6 7; do
    GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$shard "$program" --gtest_filter="$filter" --gtest_brief=1 &
    pids+=($!)
  done
  for shard in "${pids[@]}"; do wait "$shard" || status=1; done
  return $status
}

eval_demo() {
  "$fathom" eval gsm8k --model-path $demo --data $demo/eval.json --shots $demo/shots.json --device cuda \
    --json "$out/gsm8k.jsonl" "$@"
}

one_batch() {
  "$fathom" bench one-batch --load-format dummy --device cuda --input-len 1024 --result-filename "$out/one-batch.jsonl" "$@"
}

# Clients of 1, 32 and 256 against one server.
serving() {
  local port=30990 status=0 server
  "$fathom" serve --model-path $demo --device cuda --port $port --max-running-requests 256 &
  server=$!
  for clients in 1 32 256; do
    "$fathom" bench serving --port $port --num-prompts $((clients * 4 + 16)) --random-input-len 64 \
      --random-output-len 128 --max-concurrency "$clients" --output-file "$out/serving.jsonl" || status=1
  done
  kill -TERM $server
  wait $server || status=1
  return $status
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if wanted operators; then part operators shards '*cuda*' "$bin/tests/test_ops"; fi
if wanted models; then part models "$bin/tests/test_gpu"; fi
# Left out: what compares with float32 to a thousandth, which bf16 cannot keep; `models` does that with its own bounds.
if wanted engine; then
  FATHOM_TEST_DEVICE=cuda part engine "$bin/tests/test_engine" --gtest_brief=1 \
    --gtest_filter='*DemoEngine*-*golden*'
  FATHOM_TEST_DEVICE=cuda part runner "$bin/tests/test_runner" --gtest_brief=1 --gtest_filter='*DemoRunner*-*golden*:*a_tree_as_its_paths*'
fi
if wanted server; then
  for test in drain constrained_output serve; do
    FATHOM_TEST_DEVICE=cuda part "server-$test" python3 -B "tests/apps/${test}_test.py"
  done
fi
if wanted accuracy; then
  rm -f "$out/gsm8k.jsonl"
  part gsm8k-fp8 eval_demo
  part gsm8k-fp8-deterministic eval_demo --deterministic
  part gsm8k-fp8-cache eval_demo --kv-cache-dtype fp8_e4m3
  part gsm8k-bf16 eval_demo --dequantize --dtype bfloat16
  part gsm8k-eager eval_demo --disable-cuda-graph
fi
if wanted memory; then
  for tool in memcheck racecheck synccheck; do
    part "sanitizer-$tool" compute-sanitizer --tool $tool --error-exitcode 9 "$bin/tests/test_ops" --gtest_brief=1 \
      --gtest_filter='*nan*/cuda:*strided*/cuda:*step_inputs*/cuda:*commit*/cuda:*padding*/cuda-*Death*'
  done
fi
if wanted serving; then rm -f "$out/serving.jsonl"; part serving serving; fi
if wanted v2-lite; then
  part v2-lite one_batch --model-path models/configs/deepseek-v2-lite --dtype bfloat16 --batch-size 1 8 32 128 --output-len 32
fi
if wanted v3-rank; then
  part v3-rank one_batch --model-path models/configs/deepseek-v3-tp8-rank --batch-size 1 8 32 --output-len 32
fi
echo "$passed passed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]
