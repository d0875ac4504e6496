#!/usr/bin/env bash
# Runs tests with threads that are late at random (tools/thread_delays.cc). A test that fails here and not otherwise
# takes the order of threads for granted.
#
#   tools/delayed_tests.sh                             # the suite of build/release, delays up to 20 ms
#   DELAY_MS=600 JOBS=10 tools/delayed_tests.sh -R '^(engine|serve)\.' --schedule-random
#
# Arguments go to ctest. The tests wait more than they compute, so more of them fit beside each other than there are
# cores. Of what the suite bounds, times of single answers are not meant to hold with long delays.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
c++ -std=c++20 -O2 -Wall -Wextra -shared -fPIC -o "$folder/delays.so" tools/thread_delays.cc -ldl
FATHOM_DELAY_MS=${DELAY_MS:-20} LD_PRELOAD="$folder/delays.so" \
  tools/run_tests.py --preset release -- -L cpu -j "${JOBS:-8}" "$@"
