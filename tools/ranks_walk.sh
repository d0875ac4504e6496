#!/bin/bash
# What the tests of ranks and lanes do at a few sizes, at all of them: the demo model in float32 on up to eight ranks,
# of one process and of several nodes, in every way that the engine has (minutes on two cores), and a million steps of
# simulated lanes, 8 and 64 of them.
#
#   tools/ranks_walk.sh [build folder] [steps of lanes]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
steps=${2:-1000000}
FATHOM_LANE_STEPS=$steps "$build/tests/test_engine" --gtest_brief=1 --gtest_filter='*LaneWalk*'
"$build/tests/test_engine" --gtest_brief=1 --gtest_also_run_disabled_tests --gtest_filter='*RanksOf*:*NodesOf*' 2>/dev/null
