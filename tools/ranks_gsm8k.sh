#!/bin/bash
# Right answers of the demo model in its own FP8, on ranks and lanes in every mode: word problems of which none may be
# wrong. The first mode that has one wrong ends it with status 1.
#
#   tools/ranks_gsm8k.sh [questions, 500 at most] [fathom] [device: cpu or cuda] [GPUs: 2, 4 or 8]
set -euo pipefail
cd "$(dirname "$0")/.."
questions=${1:-500}
fathom=${2:-build/release/apps/fathom}
device=${3:-cpu}
gpus=${4:-2}
lanes="--enable-dp-attention --dp-size"
chain="--speculative-algorithm NEXTN --speculative-num-steps 3"
tree="$chain --speculative-eagle-topk 2 --speculative-num-draft-tokens 6"
modes=(
  ""
  "--tp-size 2"
  "--tp-size 4 --enable-ep-moe"
  "--tp-size 2 $lanes 2"
  "--tp-size 4 $lanes 4 --enable-ep-moe"
  "--tp-size 4 $lanes 2"
  "--tp-size 4 $lanes 2 --enable-ep-moe --ep-size 4"
  "--tp-size 2 $lanes 2 --chunked-prefill-size 256"
  "--tp-size 2 $lanes 2 --disable-overlap-schedule"
  "--tp-size 2 $lanes 2 --enable-ep-moe $chain"
  "--tp-size 4 $lanes 2 $tree"
)
if [ "$device" = cuda ]; then
  modes=("" --deterministic)
  # Eight parts of the model's heads straddle blocks of FP8 scales.
  whole="--tp-size $gpus"
  exact=''
  [ "$gpus" -lt 8 ] || exact="--dequantize --dtype bfloat16"
  divided=("$whole $exact" "$whole --enable-ep-moe $exact" "$whole $lanes $gpus" "$whole $lanes $gpus --enable-ep-moe")
  [ "$gpus" -eq 2 ] || divided+=("$whole $lanes $((gpus / 2))" "$whole $lanes $((gpus / 2)) --enable-ep-moe")
  for ranks in "${divided[@]}"; do
    for graph in "" --disable-cuda-graph; do
      for drafts in "" "$chain" "$tree"; do
        for cache in "" "--kv-cache-dtype fp8_e4m3"; do
          modes+=("$ranks $graph $drafts $cache")
        done
      done
    done
  done
fi
for mode in "${modes[@]}"; do
  echo "== ${mode:-one rank}"
  # shellcheck disable=SC2086
  "$fathom" eval gsm8k --model-path models/demo --data models/demo/eval.json --shots models/demo/shots.json \
    --num-questions "$questions" --parallel 32 --device "$device" --log-level error --min-accuracy 1 $mode
done
