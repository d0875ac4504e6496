#!/usr/bin/env bash
# Load on the simulation backend: starts `fathom serve --engine sim` and runs bench/http/sse_load.cc against it.
#
#   tools/load_test.sh                                  # 5,000 streams for 60 s, 1,000 clients that vanish
#   STREAMS=300 SECONDS_OPEN=3 VANISH=100 tools/load_test.sh --max-p99-ms 0
#
# Arguments go to the load program. BUILD is the build directory (build/release). Exit status 1: a bound is
# not held.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
streams=${STREAMS:-5000}
vanish=${VANISH:-1000}
seconds=${SECONDS_OPEN:-60}
step_us=${STEP_US:-200000}

ulimit -Sn "$(ulimit -Hn)"
log=$(mktemp)
# A vanishing client's request may grow to 2,000 tokens, a stream's to the steps of the whole run.
tokens=$(( (streams + vanish) * 64 * 8 ))
"$build/apps/fathom" serve --model-path models/demo --engine sim --sim-step-us "$step_us" --port 0 \
  --max-running-requests "$(( streams > vanish ? streams : vanish ))" --max-queued-requests 8192 \
  --max-total-tokens "$tokens" --chunked-prefill-size 8192 --no-log-requests > "$log" 2>&1 &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; rm -f "$log"' EXIT
url=""
for _ in $(seq 3000); do
  url=$(sed -n 's/^Fathom is ready: //p' "$log")
  [ -n "$url" ] && break
  kill -0 "$server" 2> /dev/null || break
  sleep 0.1
done
[ -n "$url" ] || { cat "$log" >&2; echo "load_test: the server was not ready within five minutes, or ended" >&2; exit 1; }

"$build/bench/load_streams" --url "$url" --pid "$server" --step-us "$step_us" --streams "$streams" \
  --seconds "$seconds" --vanish "$vanish" "$@"
