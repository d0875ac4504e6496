# Set-up commands. Each installs what is missing (tools/install_packages.sh), configures and builds.
#
#   make build      the release program: build/release/apps/fathom
#   make serve      run it on the demo model
#   make test       build everything and run the tests
#   make check      style: format, module dependencies, sizes, self-contained headers, clang-tidy
#   make sanitize   the tests under AddressSanitizer + UBSan, and the threaded modules under ThreadSanitizer
#   make fuzz       every libFuzzer target for FUZZ_SECONDS (default 60)
#   make clean      remove build/

JOBS ?= $(shell tools/build_jobs.sh)
FUZZ_SECONDS ?= 60
FATHOM := build/release/apps/fathom
DEMO := models/demo

# Modules that start threads or hand data between them.
TSAN_CANDIDATES := base metrics sched weights cpu runner engine http server
TSAN_MODULES := $(shell for m in $(TSAN_CANDIDATES); do ls tests/$$m/*.cc >/dev/null 2>&1 && echo $$m; done)
# Left out where it costs minutes and shows nothing new: the command line starts the program a hundred times,
# the page's own tests run against a server in Python, and under ThreadSanitizer no program is built.
ASAN_LEFT_OUT := ^apps\.command_line$$|^server\.page\.page$$
TSAN_PATTERN := ^($(subst $() ,|,$(TSAN_MODULES)))\.
TSAN_LEFT_OUT := ^server\.page\.

.PHONY: all build serve test check sanitize asan tsan fuzz clean packages test-packages check-packages
.DEFAULT_GOAL := build
all: build

packages:
	@tools/install_packages.sh
test-packages:
	@tools/install_packages.sh test
check-packages:
	@tools/install_packages.sh check

build: packages
	@cmake --preset release --log-level=WARNING >/dev/null
	@cmake --build --preset release --target fathom -j $(JOBS)

# The demo model on http://127.0.0.1:30000; open it in a browser. Ctrl-C ends it.
serve: build
	$(FATHOM) serve --model-path $(DEMO)

test: test-packages
	@cmake --preset release --log-level=WARNING >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@ctest --preset release -L cpu -j $(JOBS)

check: check-packages
	@cmake --preset release --log-level=WARNING >/dev/null
	@tools/check_style.sh

sanitize: asan tsan

asan: test-packages
	@cmake --preset asan --log-level=WARNING >/dev/null
	@cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan -L cpu -E '$(ASAN_LEFT_OUT)' -j $(JOBS)

tsan: test-packages
	@cmake --preset tsan --log-level=WARNING >/dev/null
	@cmake --build --preset tsan -j $(JOBS) $(addprefix --target test_,$(TSAN_MODULES))
	@ctest --preset tsan -R '$(TSAN_PATTERN)' -E '$(TSAN_LEFT_OUT)' -j $(JOBS)

fuzz: check-packages
	@cmake --preset fuzz --log-level=WARNING >/dev/null
	@cmake --build --preset fuzz -j $(JOBS) --target fuzzers
	@tools/run_fuzzers.sh build/fuzz/tests/fuzz $(FUZZ_SECONDS) $(JOBS)

clean:
	@rm -rf build
