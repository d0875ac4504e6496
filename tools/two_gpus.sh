#!/usr/bin/env bash
# Two nodes with a GPU each, as two processes of one host, beside one process with both GPUs; and which optimisations
# run together there. Each part within minutes; one that fails does not end the others. Ends with a line per part and
# `N passed, N failed`.
#
#   tools/two_gpus.sh [--out DIR] [--seconds N] [--device cuda|cpu] [PART...]
#       # parts: facts collectives tests answers messages steps lanes ablation; all of them unless named
#       # on one GPU: ablation-lite ablation-v3-rank
#
# --seconds: what all parts may take, 540; tables of ablation have what is left, each row at most 40 s of it.
# --device cpu tries the script itself with the demo model. Takes the programs from build/release, or from
# FATHOM_BIN_DIR, and NCCL from where PyTorch or the system has it. DIR (build/two-gpus) gets a log of each part,
# serving.jsonl, a line of each load, and the tables.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

out=build/two-gpus seconds=540 device=cuda
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    facts|collectives|tests|answers|messages|steps|lanes) parts+=("$1"); shift ;;
    ablation|ablation-lite|ablation-v3-rank) parts+=("$1"); shift ;;
    *) echo "unknown option or part $1" >&2; exit 2 ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(facts collectives tests answers messages steps lanes ablation)
bin=${FATHOM_BIN_DIR:-build/release}
fathom=$bin/apps/fathom
mkdir -p "$out"
. tools/parts.sh
export FATHOM_PROGRAM=$fathom FATHOM_SOURCE_DIR=$PWD
demo=models/demo
port=30987

if [ "$device" = cuda ]; then
  nccl=$(ldconfig -p | awk '/libnccl.so.2/ {print $NF; exit}')
  [ -n "$nccl" ] || nccl=$(find / /opt /usr -xdev -name libnccl.so.2 2>/dev/null | head -1)
  [ -z "$nccl" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$nccl")
  export LD_LIBRARY_PATH
fi

# model_of NAME [LAYERS OF DRAFTS]: a config with the demo model's tokenizer, in a folder of its own.
model_of() {
  local folder=$out/model-$1
  mkdir -p "$folder" && cp $demo/tokenizer*.json "$folder/"
  python3 - "models/configs/$1/config.json" "$folder/config.json" "${2:-}" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1], encoding="utf-8"))
if sys.argv[3]:
    config["num_nextn_predict_layers"] = int(sys.argv[3])
json.dump(config, open(sys.argv[2], "w", encoding="utf-8"), indent=1)
PYTHON
  echo "$folder"
}

lite=(--device "$device" --load-format dummy --dtype bfloat16 --context-length 4096)
clients=(1 16 64) prompt=1024 answer=128
if [ "$device" = cpu ]; then
  lite=(--device cpu --cpu-threads 1 --max-total-tokens 8192)
  clients=(1 4) prompt=64 answer=16
fi
lite_model() { if [ "$device" = cpu ]; then echo $demo; else model_of deepseek-v2-lite; fi; }
two_ranks=(--tp-size 2)
two_lanes=(--tp-size 2 --enable-dp-attention --dp-size 2)

key=$out/cluster-key
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$key"

# What does not end is a failure, and leaves the others their time.
within=(timeout --kill-after=5 90)

# as_nodes COMMAND ARGUMENT...: on two nodes; node 0 has the output, and its status counts.
as_nodes() {
  local nodes=(--nnodes 2 --dist-init-addr "127.0.0.1:$((port + 1))" --cluster-key-file "$key") node status=0
  CUDA_VISIBLE_DEVICES=1 "${within[@]}" "$fathom" "$@" "${nodes[@]}" --node-rank 1 >"$out/node-1.log" 2>&1 &
  node=$!
  CUDA_VISIBLE_DEVICES=0 "${within[@]}" "$fathom" "$@" "${nodes[@]}" --node-rank 0 || status=$?
  wait $node || { echo "node 1 ended with $?"; tail -n 5 "$out/node-1.log"; status=1; }
  return $status
}

facts() {
  [ "$device" = cpu ] || { nvidia-smi -q -d CLOCK,POWER | head -40; nvidia-smi topo -m; echo "NCCL: ${nccl:-none}"; }
  "$fathom" doctor
}

collectives() {
  "${within[@]}" "$bin/tests/test_gpu" --gtest_filter='PeerRanks.*:*GpuCollectives.*:RanksOfGpus.*:NcclRanks.*'
}

tests() {
  FATHOM_TEST_DEVICE=$device timeout --kill-after=5 150 \
    python3 -B tests/apps/nodes_test.py -v TokensTest ServingTest
}

# Word problems of the demo model in its own FP8, and the tokens of V2-Lite's random weights: by both.
answers() {
  local status=0 ranks model
  model=$(lite_model)
  for ranks in "${two_ranks[*]}" "${two_lanes[*]} --enable-ep-moe" \
    "${two_lanes[*]} --speculative-algorithm NEXTN --speculative-num-steps 3"; do
    echo "== $ranks"
    # shellcheck disable=SC2086
    as_nodes eval gsm8k --model-path $demo --data $demo/eval.json --shots $demo/shots.json --num-questions 200 \
      --parallel 32 --device "$device" --log-level error --min-accuracy 1 $ranks || status=1
  done
  for ranks in "${two_ranks[*]}" "${two_lanes[*]}"; do
    local ask=(generate --model-path "$model" "${lite[@]}" --log-level error --json --return-logprob --temperature 0
      --max-new-tokens 64 --ignore-eos --prompt "Hello, here are three numbers: 7, 12 and 31. Their sum is")
    # shellcheck disable=SC2086
    "${within[@]}" "$fathom" "${ask[@]}" $ranks >"$out/one.json" && as_nodes "${ask[@]}" $ranks >"$out/nodes.json" &&
      python3 - "$ranks" "$out/one.json" "$out/nodes.json" <<'PYTHON' || status=1
import json, sys
one, nodes = ([token[:2] for token in json.load(open(path, encoding="utf-8"))["meta_info"]["output_token_logprobs"]]
              for path in sys.argv[2:])
equal = sum(a == b for a, b in zip(one, nodes))
print(f"== V2-Lite, {sys.argv[1]}: {equal} of {len(one)} tokens with their log-probabilities to the bit")
sys.exit(0 if one == nodes and one else 1)
PYTHON
  done
  return $status
}

messages() { "${within[@]}" "$bin/bench/bench_nodes" "127.0.0.1:$((port + 2))"; }

# loads NAME SERVER: each number of clients; then what the server says of its steps.
loads() {
  local name=$1 status=0 count
  until_ready "$port" "$2" 120 || return 1
  for count in "${clients[@]}"; do
    echo "== $name, $count clients"
    "${within[@]}" "$bin/apps/fathom-bench" serving --port $port --num-prompts $((count == 1 ? 4 : 2 * count)) \
      --warmup-requests 1 --random-input-len $prompt --random-output-len $answer --random-range-ratio 1 --max-concurrency "$count" \
      --tag "$name" --output-file "$out/serving.jsonl" || status=1
  done
  python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' \
    "http://127.0.0.1:$port/metrics" >"$out/metrics-$name.txt" || status=1
  return $status
}

# A server within 20 s of a SIGTERM; node 1 has ended with node 0 by then, or is sent it.
ends() {
  local server=$1 tries=100
  kill -TERM "$server" 2>/dev/null
  while kill -0 "$server" 2>/dev/null; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "$server does not end"; kill -9 "$server"; break; }
    sleep 0.2
  done
  wait "$server"
}

# beside NAME MODEL FLAGS...: the same load on one process with both GPUs, and on two nodes.
beside() {
  local name=$1 model=$2 status=0 server node
  shift 2
  local serve=("$fathom" serve --model-path "$model" --port "$port" --max-running-requests 64 "$@")
  "${serve[@]}" 2>"$out/$name-one.log" & server=$!
  loads "$name-one-process" $server || status=1
  ends "$server" || status=1
  local nodes=(--nnodes 2 --dist-init-addr "127.0.0.1:$((port + 1))" --cluster-key-file "$key")
  CUDA_VISIBLE_DEVICES=1 "${serve[@]}" "${nodes[@]}" --node-rank 1 >"$out/$name-node-1.log" 2>&1 & node=$!
  CUDA_VISIBLE_DEVICES=0 "${serve[@]}" "${nodes[@]}" --node-rank 0 2>"$out/$name-node-0.log" & server=$!
  loads "$name-two-nodes" $server || status=1
  ends "$server" || status=1
  ends "$node" || status=1
  [ $status -eq 0 ] || tail -n 5 "$out/$name"-*.log
  return $status
}

steps() {
  local status=0
  beside demo $demo --device "$device" "${two_ranks[@]}" || status=1
  beside lite "$(lite_model)" "${lite[@]}" "${two_ranks[@]}" || status=1
  return $status
}

lanes() { beside lite-lanes "$(lite_model)" "${lite[@]}" "${two_lanes[@]}"; }

# table NAME MODEL FLAGS...: what is not measured in time says so in the table.
table() {
  local name=$1 model=$2 left=$((seconds - SECONDS))
  local load=(--clients 16 --input-len 190 --output-len 115 --query-tokens 64)
  shift 2
  if [ "$device" = cpu ]; then load=(--clients 2 --input-len 16 --output-len 8 --query-tokens 8); fi
  # Random weights answer nothing right.
  timeout --signal=INT "$((left > 20 ? left : 20))" "$fathom" bench ablation --model-path "$model" --device "$device" \
    "${load[@]}" --requests-per-client 1 --data $demo/eval.json --shots $demo/shots.json --num-questions 1 \
    --num-shots 1 --max-new-tokens 8 --time-limit 40 --json "$out/$name.json" --markdown "$out/$name.md" --svg "$out/$name.svg" "$@"
}
on_one_gpu=(--tp-size 1 --rows 1 2 B1 K1 K2 K4 F1 F2 F3 F4 F5 F6 F7)
random=(--load-format dummy --context-length 2048)

# With a draft layer, which the published one has not: V2-Lite's own shape, random weights.
ablation() { table ablation "$(model_of deepseek-v2-lite 1)" "${random[@]}"; }
ablation-lite() { table ablation-lite "$(model_of deepseek-v2-lite 1)" "${random[@]}" "${on_one_gpu[@]}"; }
# As many layers as the GPU has room for.
ablation-v3-rank() {
  local layers=()
  if [ "$device" = cuda ]; then
    local mib
    mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)
    [ "$mib" -gt 100000 ] || layers=(--num-layers 44)
  fi
  table ablation-v3-rank "$(model_of deepseek-v3-tp8-rank)" "${random[@]}" "${layers[@]}" "${on_one_gpu[@]}"
}

rm -f "$out/serving.jsonl"
for name in "${parts[@]}"; do part "$name" "$name"; done
finish_parts
