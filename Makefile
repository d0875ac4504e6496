# Set-up commands. Each installs what is missing (tools/install_packages.sh), configures and builds.
#
#   make build      the release programs: build/release/apps/fathom and fathom-bench
#   make serve      run it on the demo model; PORT=30001 takes another port
#   make package    a .deb, a tarball, a wheel, checksums and an SBOM: build/package/dist
#   make test       build everything and run the tests
#   make clients    the tests of third-party clients alone, with those that are too large for `make test`
#   make check      style: format, module dependencies, sizes, self-contained headers, clang-tidy
#   make sanitize   the tests under AddressSanitizer + UBSan, and the threaded modules under ThreadSanitizer
#   make fuzz       every libFuzzer target for FUZZ_SECONDS (default 60)
#   make clean      remove build/

JOBS ?= $(shell tools/build_jobs.sh)
# Half as many again: the tests that drive a program or a browser wait for most of their time.
TEST_JOBS ?= $(shell echo $$((($(JOBS) * 3 + 1) / 2)))
FUZZ_SECONDS ?= 60
PORT := 30000
FATHOM := build/release/apps/fathom
DEMO := models/demo

# Modules that start threads or hand data between them.
TSAN_MODULES := base metrics jit comm nodes kv_events sched weights cpu runner engine http client serve
TSAN_PATTERN := ^($(subst $() ,|,$(TSAN_MODULES)))\.
# What the sanitizer runs leave out, and why: patterns of test names for tools/run_tests.py, which lists them.
# With ASAN_LEFT_OUT= or TSAN_LEFT_OUT= on the command line they leave out nothing that was built.
MODEL_LEFT_OUT := \
  --leave-out '^engine\.Deterministic\.' 'computes the demo model for minutes, in the same code as engine.DemoEngine; to run it: make test' \
  --leave-out '^engine\.drafters/ModelSpeculation\.equals_plain_decoding_in_every_way' 'computes the demo model for minutes, in the same code as the other tests of ModelSpeculation; to run it: make test' \
  --leave-out '^engine\.drafters/ModelSpeculation\.(an_adaptive_depth|captured_steps|a_failed_row)_.*/chain_[123]$$' 'runs with a tree too; to run it: make test' \
  --leave-out '^engine\.(.*RanksOf\.|.*NodesOf\.|RankDesync\.of_(a_lane|the_rows|ranks_that_wait))' 'computes the demo model on several ranks for minutes, as engine.FewRanks and the other tests of RankDesync do for seconds; to run it: make test' \
  --leave-out '^runner\.Backends/ScratchPlan\..*/fast_1_thread$$' 'runs with 3 threads too; to run it: make test' \
  --leave-out '^engine\.Million/.*/shard_[1-9]$$' 'more seeds of the simulation of the first shard; to run it: make test' \
  --leave-out '^engine\.Lanes/LaneWalk\..*/of_64$$' 'the same walk with more lanes than of_8; to run it: make test' \
  --leave-out '^engine\.Equivalence\.chunks_of_any_size|^engine\.Equivalence\.storms_of|^engine\.Equivalence\.batches_of_any|^engine\.Equivalence\.hits_misses|^engine\.Equivalence\.many_copies|^engine\.Equivalence\.retraction_forced' 'does for minutes a part of what everything_at_once_at_random does; to run it: make test' \
  --leave-out '^engine\.PlantedFault\.seeds' 'runs that simulation for minutes, with faults; to run it: make test'
ASAN_LEFT_OUT := $(MODEL_LEFT_OUT) \
  --leave-out '^apps\.(command_line|constrained_output|fathom_bench|bench_ops|ranks|stuck_log|dear_requests|checkpoints|quantize_checkpoint|first_hour|sizes|install|bench_ablation|deploy_files|operator_files|timing_between_keys|ranks_serving|serve_start|hostile_bodies)$$' 'runs the program over and over, for minutes, or tries what is around it; to run it: make test' \
  --leave-out '^apps\.drain$$|^apps\.load$$' 'runs the program for minutes, as soak and many others do; to run it: make test' \
  --leave-out '^constrained\.walk$$' 'computes masks for minutes, by the code of the tests of grammar; to run it: make test' \
  --leave-out '^runner\.Backends/ScratchPlan\..*/reference_' 'computes the demo model for minutes, as fast_3_threads does; to run it: make test' \
  --leave-out '^tools\.' 'tries tools in Python, of which a sanitizer sees nothing; to run it: make test' \
  --leave-out '^apps\.RankListing\.' 'counts bytes of every published model for minutes; to run it: make test' \
  --leave-out '^api\.ParameterTable\.' 'asks for minutes what serve.BadInput asks the whole server; to run it: make test' \
  --leave-out '^serve\.BackPressure\.a_reader_that_stops|^serve\.SeveralKeys\.' 'waits for a minute, and runs with threads checked; to run it: make test tsan' \
  --leave-out '^clients\.sglang_bench_replay$$' 'runs the program for minutes; to run it: make test' \
  --leave-out '^clients\.(langchain|openai_agents|pydantic_ai|litellm|instructor|llama_index|lm_eval|guidellm|anthropic_client|openapi)$$' 'asks for what clients.openai_client and its like ask for; to run it: make test' \
  --leave-out '^page\.(page|views|edit|facts|keep|chats|loading|logprobs|looks|markdown|math|tools|docs|real_server|foreign_page)$$' 'drives a browser for minutes; to run it: make test' \
  --leave-out '^model\..*LongEquivalence|^model\..*Precision\.' 'computes the same operators for minutes; to run it: make test' \
  --leave-out '^cpu\..*gives_(a_row_)?the_same_bits' 'computes the same kernels for minutes; to run it: make test' \
  --leave-out '^ops\.backends/.*/reference$$' 'computes for minutes by loops that cpu.FastBackendTest and the tests of model run too; to run it: make test' \
  --leave-out '^ops\.backends/MlaAbsorbedTest\.a_long_sequence_does_not_depend' 'compares bits as many_sequences_of_all_lengths_get_the_bits_of_few does; to run it: make test' \
  --leave-out '^ops\.backends/DummyWeightsTest\.a_device' 'fills large tensors for minutes, as the_parts_of_ranks do; to run it: make test' \
  --leave-out '^ops\.backends/MlaAbsorbedKernelsTest\.' 'computes for minutes what MlaAbsorbedTest does, at sizes where a GPU takes other kernels; to run it: make test' \
  --leave-out '^ops\.backends/.*/fast_(portable|avx2|avx512)$$' 'runs with 3 threads too; to run it: make test' \
  --leave-out '^answer\.formats/DeepSeekWays\..*/[rv][0-9]_|^answer\.formats/DeepSeekWays\..*/v[23]$$' 'runs with r1 too; to run it: make test' \
  --leave-out '^nodes\.ClusterStart\.takes_no_notice_of_strangers$$|^nodes\.ClusterOfProcesses\.' 'the leak checker itself may end by a signal on the storage of threads that UCX leaves; to run it: make test' \
  --leave-out '^text\.All/DsmlCases\.HoldForEveryPrefix|^text\.All/Goldens\.HoldForEveryPrefix' 'reads for minutes what AreTheSameForEverySplit reads; to run it: make test' \
  --leave-out '^runner\.Drafter\.simulated_acceptance' 'draws for half a minute in one thread; to run it: make test' \
  --leave-out '^text\..*\.HostileOutputsTakeLinearTime$$' 'measures times, which a sanitizer changes, on outputs of the same kinds as the other tests of these readers; to run it: make test'
# Of the kernels for AVX-512 the sanitizers check nothing: src/cpu/module.cmake.
SANITIZED_ISA := $(if $(shell grep -m 1 -ow avx512f /proc/cpuinfo 2>/dev/null),FATHOM_CPU_ISA=avx2)
TSAN_LEFT_OUT := $(MODEL_LEFT_OUT) \
  --leave-out '^cpu\..*agrees_with_the_reference|^cpu\..*gives_a_row_the_same_bits' 'computes the same kernels for minutes; to run it: make test asan' \
  --leave-out '^engine\.SumParts\.' 'computes for a minute in the threads of engine.FewRanks; to run it: make test asan' \
  --leave-out '^serve\..*PublishedVocabulary\.|^serve\.ToolCalls\.|^serve\.BadInput\.|^serve\..*ReasoningBudgets\.' 'asks for minutes in the threads of serve.ApiServer and serve.GenerationService; to run it: make test asan' \
  --leave-out '^(base\.JsonScanner\.agrees|runner\.Drafter\.simulated_acceptance)' 'takes minutes in one thread; to run it: make test' \
  --leave-out '^cpu\..*/portable$$' 'runs in the threads of the other instruction sets; to run it: make test' \
  --leave-out '^(runner\.Backends/ScratchPlan\.|runner\.drafters/PaddedStep\..*/chain$$)' 'computes the demo model for minutes in the threads of runner.ModelRunner; to run it: make test asan' \
  --leave-out '^engine\.DemoEngine\.answers_the_same_from_a_cache' 'retracts for minutes what engine.Equivalence retracts too; to run it: make test asan' \
  --leave-out '^runner\.graphs/.*/(none|padded)$$' 'runs with a graph for each size too; to run it: make test asan' \
  --leave-out '^weights\.(Types/ShardedLoadTest|GoldenWeights|HostileSafetensors|Int[48]Loader)' 'reads in the threads that weights.Loader tests; to run it: make test asan' \
  --only '$(TSAN_PATTERN)' 'the other modules start no threads of their own; to run them: make test asan'

configure = @mkdir -p build/$(1) && [ -w build/$(1) ] || { echo "$$(id -un) cannot write to $(CURDIR)/build/$(1)"; exit 1; }; \
	[ -e build/$(1)/build.ninja ] || echo "Configuring build/$(1)"; \
	cmake --preset $(1) --log-level=NOTICE >/dev/null

.PHONY: all build serve package test clients check sanitize asan tsan fuzz clean packages test-packages check-packages
.PHONY: build-test build-asan build-tsan
.DEFAULT_GOAL := build
# The steps of one goal come in order and Ninja spreads the work; under `make -j` two goals would build at once.
.NOTPARALLEL:
all: build

packages:
	@tools/install_packages.sh
test-packages:
	@tools/install_packages.sh test
check-packages:
	@tools/install_packages.sh check

build: packages
	$(call configure,release)
	@tools/say_build_time.sh build/release fathom fathom-bench
	@cmake --build --preset release --target fathom fathom-bench -j $(JOBS)

# The demo model on http://127.0.0.1:30000; open it in a browser. Ctrl-C ends it.
serve: build
	$(FATHOM) serve --model-path $(DEMO) --port $(PORT)

# Of what `make build` built: with CUDA where there is an nvcc. WHEEL=no leaves the wheel out, which needs PyPI.
package: build
	@tools/package/build.sh

test: build-test
	@tools/run_tests.py --preset release --report build/release/test_report.txt -- -L cpu -j $(TEST_JOBS)

clients: test-packages build
	@FATHOM_ALL_CLIENTS=1 VENV_LIMIT_SECONDS=1800 tools/run_tests.py --preset release -- -R '^clients\.' -j $(JOBS)

build-test: test-packages
	$(call configure,release)
	@cmake --build --preset release -j $(JOBS)

check: check-packages
	$(call configure,release)
	@tools/check_style.sh

sanitize: asan tsan

asan: build-asan
	@$(SANITIZED_ISA) tools/run_tests.py --preset asan --suites $(ASAN_LEFT_OUT) --report build/asan/test_report.txt -- -L cpu -j $(TEST_JOBS)

build-asan: test-packages check-packages
	$(call configure,asan)
	@cmake --build --preset asan -j $(JOBS)

tsan: build-tsan
	@$(SANITIZED_ISA) tools/run_tests.py --preset tsan --suites $(TSAN_LEFT_OUT) --report build/tsan/test_report.txt -- -L cpu -j $(TEST_JOBS)

build-tsan: test-packages check-packages
	$(call configure,tsan)
	@cmake --build --preset tsan -j $(JOBS) $(addprefix --target test_,$(TSAN_MODULES))

fuzz: check-packages
	$(call configure,fuzz)
	@cmake --build --preset fuzz -j $(JOBS) --target fuzzers
	@tools/run_fuzzers.sh build/fuzz/tests/fuzz $(FUZZ_SECONDS) $(JOBS)

clean:
	@rm -rf build
