#!/usr/bin/env bash
# Says, before a build that takes minutes, how long it will be and why: tools/say_build_time.sh BUILD TARGET...
# Nothing when there is little to do.
set -eu
build=$1 seconds_each=4  # of one processor for one file, GCC 12 on servers of 2023 and 2024
shift
files=$(ninja -C "$build" -n "$@" 2>/dev/null | grep -c 'Building C' || true)
cuda=$(ninja -C "$build" -n "$@" 2>/dev/null | grep -c 'Building CUDA' || true)
[ "$files" -gt 30 ] || exit 0
jobs=$("$(dirname "$0")/build_jobs.sh")
minutes=$(((files * seconds_each + cuda * 30) / jobs / 60 + 1))
echo "Compiling $files files$([ "$cuda" -eq 0 ] || echo ", $cuda of them kernels"), $jobs at a time: about $minutes minutes, once. What changes later is compiled alone."
