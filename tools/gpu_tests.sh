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

# For the sanitizers, which make kernels some hundred times slower: small cases of every family of operators.
small_cases=(
  LinearTest.adds_to_the_output_when_told_and_takes_strided_rows
  LinearPairTest.equals_two_products
  HeadLinearTest.rows_do_not_depend_on_the_batch
  LinearTest.quantize_fp8_keeps_nan_and_infinity_visible
  LinearTest.a_nan_in_one_row_stays_in_that_row
  HeadLinearTest.a_nan_stays_in_its_row_and_its_head
  LinearTest.writes_float32_logits
  FusedTest.linear_of_quantised_rows_equals_the_quantisation_inside_it
  LargeProductTest.a_nan_in_one_row_stays_in_that_row
  MoeExpertsTest.a_nan_in_one_row_stays_in_that_row
  MoeTest.moe_gate_gives_padding_rows_no_experts_and_leaves_the_others_alone
  MoeTest.moe_gate_of_a_nan_row_still_names_distinct_experts
  MlaAbsorbedTest.several_query_tokens_see_each_other_causally
  MlaAbsorbedTest.a_nan_row_reaches_only_the_queries_that_see_it
  MlaAbsorbedTest.padding_sequences_give_zeros_and_no_sequence_gives_nothing
  MlaExpandedTest.a_nan_value_reaches_only_the_queries_that_see_it
  KvRowsTest.kv_append_writes_normalised_and_rotated_rows_to_their_slots_only
  KvRowsTest.kv_gather_follows_the_block_table_across_block_boundaries
  ElementwiseTest.rope_rotates_interleaved_pairs_inside_strided_heads
  ElementwiseTest.rms_norm_of_zeros_is_zero_and_a_nan_stays_in_its_row
  ElementwiseTest.rms_norm_adds_the_residual_first_and_may_write_over_its_input
  ElementwiseTest.embedding_copies_rows_of_the_table_into_strided_rows
  ElementwiseTest.gather_rows_picks_rows_in_any_order_and_repeatedly
  RmsNormQuantizeTest.equals_the_norm_and_the_quantisation
  SiluMulQuantizeTest.equals_the_activation_and_the_quantisation
  SampleRulesTest.a_forced_row_reports_that_tokens_log_probability
  SampleRulesTest.a_non_finite_row_fails_alone
  StepInputsTest.step_inputs_continue_each_slot_where_it_stands
  CommitTokensTest.commit_tokens_advances_slots_and_counts_and_skips_failed_rows
)
# Racecheck had not done these after a minute.
draw_cases=(
  SampleDrawTest.banned_and_masked_tokens_are_never_drawn
  SampleDrawTest.the_two_zeros_are_equal
)

# sanitize TOOL: each case in a process of its own, for they are checked one launch after another.
sanitize() {
  local tool=$1 cases=("${small_cases[@]}") found
  [ "$tool" = racecheck ] || cases+=("${draw_cases[@]}")
  # A name that no test has would pass.
  found=$("$bin/tests/test_ops" --gtest_list_tests --gtest_filter="$(printf 'backends/%s/cuda:' "${cases[@]}")" | grep -c '^  ')
  [ "$found" -eq ${#cases[@]} ] || { echo "$found of ${#cases[@]} cases are tests"; return 1; }
  printf '%s\n' "${cases[@]}" | xargs -P 16 -I{} compute-sanitizer --tool "$tool" --error-exitcode 9 \
    "$bin/tests/test_ops" --gtest_brief=1 --gtest_filter='backends/{}/cuda'
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
    --gtest_filter='*DemoEngine*:*ModelSpeculation*-*golden*'
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
  part gsm8k-speculation eval_demo --speculative-algorithm NEXTN --speculative-num-steps 3 --no-speculative-adaptive
fi
if wanted memory; then
  for tool in memcheck racecheck synccheck; do part "sanitizer-$tool" sanitize $tool; done
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
