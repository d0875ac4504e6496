#!/usr/bin/env bash
# DeepSeek-V3 whole on the GPUs of one host, with dummy weights: what docs/perf/ranks.md infers for eight, measured.
# Each part ends within ten minutes on eight H200; a part that fails does not end the others. Ends with a line per part
# and `N passed, N failed`.
#
#   tools/eight_gpus.sh [--ranks 8] [--out DIR] [--layers N] [--model DIR] [--device cuda|cpu] [PART...]
#                       # parts: facts sums steps drafts prefill batches lanes accuracy; all of them unless named
#
# --layers N keeps the first N layers, so that it can be tried where the whole model has no room; --device cpu with
# --model models/demo tries the script itself. Takes the programs from build/release, or from FATHOM_BIN_DIR.
# DIR (build/eight-gpus) gets a log of each part and results.jsonl: a line of each batch, with its part as run_name.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

ranks=8 out=build/eight-gpus layers='' model=models/configs/deepseek-v3 device=cuda
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --layers) layers=$2; shift 2 ;;
    --model) model=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    facts|sums|steps|drafts|prefill|batches|lanes|accuracy) parts+=("$1"); shift ;;
    *) echo "unknown option or part $1" >&2; exit 2 ;;
  esac
done
all=''
[ ${#parts[@]} -gt 0 ] || { parts=(facts sums steps drafts prefill batches lanes accuracy); all=1; }
bin=${FATHOM_BIN_DIR:-build/release}
fathom=$bin/apps/fathom
mkdir -p "$out"
results=$out/results.jsonl
# A part that is run again adds its lines to those of the others.
[ -z "$all" ] || rm -f "$results"
. tools/parts.sh

common=(--load-format dummy --device "$device")
[ -z "$layers" ] || common+=(--num-layers "$layers")
tensor=(--tp-size "$ranks")
lanes=(--tp-size "$ranks" --enable-dp-attention --dp-size "$ranks" --enable-ep-moe)
# Prompts and clients of a size that a CPU computes too, to try the script.
context=1024 prompt=4096 served_prompt=2048 sizes=(1 8 32) clients=(256 512 1024)
if [ "$device" = cpu ]; then context=64 prompt=128 served_prompt=64 sizes=(1 2) clients=(2 4); fi

one_batch() {
  local name=$1
  shift
  echo "== $name: $*"
  "$fathom" bench one-batch --model-path "$model" "${common[@]}" --run-name "$name" --result-filename "$results" "$@"
}

facts() {
  if [ "$device" = cuda ]; then nvidia-smi -q -d CLOCK,POWER | head -40 && nvidia-smi topo -m; fi
  "$fathom" doctor
  "$fathom" inspect --model-path "$model" "${common[@]}" "${tensor[@]}" &&
    "$fathom" inspect --model-path "$model" "${common[@]}" "${lanes[@]}"
}

sums() {
  "$fathom" bench all-reduce "${tensor[@]}" --replays 200 --bytes 2048 14336 57344 114688 262144 458752 1048576 4194304 8388608
}

steps() { one_batch steps "${tensor[@]}" --batch-size "${sizes[@]}" --input-len $context --output-len 64; }

# Drafts as the MTP layer of the published model is accepted: 1.79, 2.27 and 2.49 tokens a step with 1, 2 and 3 drafts.
drafts() {
  local status=0 depth accepted
  for depth in "1 1.79" "2 2.27" "3 2.49"; do
    read -r depth accepted <<<"$depth"
    one_batch "drafts-$depth" "${tensor[@]}" --batch-size "${sizes[@]}" --input-len $context --output-len 64 \
      --speculative-algorithm NEXTN --speculative-num-steps "$depth" --simulate-accept-length "$accepted" || status=1
  done
  return $status
}

prefill() {
  one_batch prefill "${tensor[@]}" --batch-size 8 --input-len $prompt --output-len 2 --chunked-prefill-size $((8 * prompt)) &&
    one_batch prefill-lanes "${lanes[@]}" --batch-size 8 --input-len $prompt --output-len 2 --chunked-prefill-size $((8 * prompt))
}

# Steps of as many requests as are served below, all of which are there.
batches() { one_batch batches "${lanes[@]}" --batch-size "${clients[@]}" --input-len $served_prompt --output-len 32; }

# A server reads and writes text: the model's config, with the demo model's tokenizer where it has none.
with_tokenizer() {
  local folder=$out/model
  mkdir -p "$folder" && cp models/demo/tokenizer*.json "$folder/"
  cp "$model"/*.json "$folder/"
  echo "$folder"
}

# served NAME FLAGS...: a server of these ranks, and one client after the other of each number.
served() {
  local name=$1 port=30988 status=0 server count folder
  shift
  folder=$(with_tokenizer)
  "$fathom" serve --model-path "$folder" "${common[@]}" --port $port --max-running-requests "${clients[-1]}" "$@" &
  server=$!
  until_ready $port $server || status=1
  [ "$device" != cuda ] || nvidia-smi --query-gpu=index,memory.used --format=csv
  for count in "${clients[@]}"; do
    [ $status -eq 0 ] || break
    echo "== $name, $count clients"
    "$bin/apps/fathom-bench" serving --port $port --num-prompts $((2 * count)) --random-input-len $served_prompt \
      --random-output-len 256 --random-range-ratio 1 --max-concurrency "$count" --output-file "$results" || status=1
  done
  kill -TERM $server
  wait $server || status=1
  return $status
}

# Both ways to divide the model, at the same load.
lanes() { served lanes "${lanes[@]}" && served tensor "${tensor[@]}"; }

accuracy() {
  local questions=500
  [ "$device" = cuda ] || questions=20
  tools/ranks_gsm8k.sh $questions "$fathom" "$device" "$ranks"
}

for name in "${parts[@]}"; do part "$name" "$name"; done
finish_parts
