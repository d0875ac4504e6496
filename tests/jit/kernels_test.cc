// Kernels compiled at run time, with a compiler and a GPU that tests stand in for: who waits for what, what the cache
// spares, and that no failure is anybody's but the kernel's.

#include "jit/kernels.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "base/failpoint.h"
#include "tests/scratch_directory.h"

namespace fathom::jit {
namespace {

// Counts, and compiles when it is told to. Code is "code of TEXT".
struct Workshop {
  std::atomic<int> num_opened{0}, num_compiled{0}, num_loaded{0};
  std::promise<void> may_compile;
  std::shared_future<void> permission = may_compile.get_future().share();
  std::string compiler_name = "test compiler 1", no_compiler, no_load;
  std::deque<std::string> loaded;  // which kernels point to
  std::vector<std::future<void>> threads;

  void join() {
    for (std::future<void>& thread : threads) thread.wait();
    threads.clear();
  }
};

class TestCompiler : public Compiler {
 public:
  explicit TestCompiler(Workshop& workshop) : workshop_(workshop) {}
  const std::string& name() const override { return workshop_.compiler_name; }
  Result<std::string> compile(const Source& source) override {
    workshop_.permission.wait();
    ++workshop_.num_compiled;
    if (source.text == "wrong") return Error{ErrorCode::kInternal, "line 1: wrong"};
    return "code of " + source.text;
  }

 private:
  Workshop& workshop_;
};

Kernels::Tools tools_of(Workshop& workshop) {
  return {.open_compiler = [&workshop]() -> Result<std::unique_ptr<Compiler>> {
            ++workshop.num_opened;
            if (!workshop.no_compiler.empty())
              return Error{ErrorCode::kNotFound, workshop.no_compiler};
            return std::unique_ptr<Compiler>(std::make_unique<TestCompiler>(workshop));
          },
          .load = [&workshop](const std::string& code, const std::string&) -> Result<void*> {
            if (code == workshop.no_load) return Error{ErrorCode::kInternal, "no room"};
            ++workshop.num_loaded;
            return static_cast<void*>(&workshop.loaded.emplace_back(code));
          },
          .start =
              [&workshop](std::function<void()> work) {
                workshop.threads.push_back(std::async(std::launch::async, std::move(work)));
              }};
}

std::string text_of(Kernel& kernel) {
  void* const code = kernel.code();
  return code == nullptr ? "" : *static_cast<std::string*>(code);
}

Options options_of(const ScratchDirectory& folder, Mode mode) {
  return {.mode = mode, .library = "", .directory = folder / "jit"};
}

TEST(JitKernels, off_opens_nothing) {
  const ScratchDirectory folder;
  Workshop workshop;
  Kernels kernels(options_of(folder, Mode::kOff), tools_of(workshop));
  EXPECT_EQ(text_of(kernels.want("one", {.text = "1"})), "");
  kernels.settle();
  EXPECT_TRUE(kernels.progress().is_done);
  EXPECT_TRUE(workshop.threads.empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "jit"));
  EXPECT_EQ(kernels.states().at(0).state, "off");
}

TEST(JitKernels, background_opens_no_compiler_before_the_program_is_ready) {
  const ScratchDirectory folder;
  Workshop workshop;
  workshop.may_compile.set_value();
  Kernels kernels(options_of(folder, Mode::kBackground), tools_of(workshop));
  Kernel& kernel = kernels.want("one", {.text = "1"});
  EXPECT_EQ(text_of(kernel), "");
  workshop.join();
  EXPECT_EQ(workshop.num_opened, 0);
  kernels.settle();
  workshop.join();
  EXPECT_EQ(text_of(kernel), "code of 1");
  // What is wanted later is compiled at once.
  Kernel& later = kernels.want("two", {.text = "2"});
  workshop.join();
  EXPECT_EQ(text_of(later), "code of 2");
  EXPECT_EQ(workshop.num_opened, 1);
}

TEST(JitKernels, background_waits_for_no_compiler) {
  const ScratchDirectory folder;
  Workshop workshop;
  Kernels kernels(options_of(folder, Mode::kBackground), tools_of(workshop));
  Kernel& kernel = kernels.want("one", {.text = "1"});
  kernels.settle();
  EXPECT_EQ(text_of(kernel), "");
  EXPECT_EQ(kernels.states().at(0).state, "wanted");
  EXPECT_FALSE(kernels.progress().is_done);
  EXPECT_EQ(kernels.progress().num_compiled, 0);
  workshop.may_compile.set_value();
  workshop.join();
  EXPECT_EQ(text_of(kernel), "code of 1");
  EXPECT_TRUE(kernels.progress().is_done);
  EXPECT_EQ(kernels.progress().num_compiled, 1);
  EXPECT_TRUE(kernels.states().at(0).state.starts_with("compiled in"));
}

TEST(JitKernels, background_compiles_behind_its_head_start_and_looks_up_in_it) {
  const ScratchDirectory folder;
  const Source cached{.text = "2"};
  ASSERT_TRUE(DiskCache::open(folder / "jit", 1 << 20)->store(key_of(cached), "code of 2"));
  Workshop workshop;
  workshop.may_compile.set_value();
  Options options = options_of(folder, Mode::kBackground);
  options.head_start = std::chrono::hours(1);
  Kernels kernels(options, tools_of(workshop));
  Kernel& one = kernels.want("one", {.text = "1"});
  kernels.settle();
  EXPECT_EQ(text_of(kernels.want("two", cached)), "code of 2");
  EXPECT_EQ(text_of(one), "");
  EXPECT_EQ(workshop.num_opened, 0);
  EXPECT_FALSE(kernels.progress().is_done);
  kernels.hasten();
  workshop.join();
  EXPECT_EQ(text_of(one), "code of 1");
}

TEST(JitKernels, wait_waits) {
  const ScratchDirectory folder;
  Workshop workshop;
  Kernels kernels(options_of(folder, Mode::kWait), tools_of(workshop));
  Kernel& one = kernels.want("one", {.text = "1"});
  Kernel& two = kernels.want("two", {.text = "2"});
  std::future<std::string> code = std::async(std::launch::async, [&] { return text_of(two); });
  EXPECT_EQ(code.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  workshop.may_compile.set_value();
  EXPECT_EQ(code.get(), "code of 2");
  kernels.settle();
  EXPECT_EQ(text_of(one), "code of 1");
  workshop.join();
}

TEST(JitKernels, equal_sources_are_one_kernel) {
  const ScratchDirectory folder;
  Workshop workshop;
  workshop.may_compile.set_value();
  Kernels kernels(options_of(folder, Mode::kWait), tools_of(workshop));
  Kernel& one = kernels.want("one", {.text = "1"});
  EXPECT_EQ(&kernels.want("the same", {.text = "1"}), &one);
  EXPECT_NE(&kernels.want("one", {.text = "1", .options = {"-O0"}}), &one);
  kernels.settle();
  workshop.join();
  EXPECT_EQ(workshop.num_compiled, 2);
}

TEST(JitKernels, warm_cache_compiles_nothing) {
  const ScratchDirectory folder;
  for (const Mode mode : {Mode::kWait, Mode::kBackground}) {
    Workshop workshop;
    if (mode == Mode::kWait) workshop.may_compile.set_value();
    Kernels kernels(options_of(folder, mode), tools_of(workshop));
    // There at once in the second round, though the compiler never gets to work.
    EXPECT_EQ(text_of(kernels.want("one", {.text = "1"})), "code of 1");
    workshop.join();
    EXPECT_EQ(workshop.num_compiled, mode == Mode::kWait ? 1 : 0);
    EXPECT_EQ(kernels.states().at(0).state == "from the cache", mode == Mode::kBackground);
  }
}

TEST(JitKernels, cached_code_that_does_not_load_is_compiled_again) {
  const ScratchDirectory folder;
  const Source source{.text = "1"};
  ASSERT_TRUE(DiskCache::open(folder / "jit", 1 << 20)->store(key_of(source), "of another driver"));
  Workshop workshop;
  workshop.no_load = "of another driver";
  workshop.may_compile.set_value();
  Kernels kernels(options_of(folder, Mode::kWait), tools_of(workshop));
  EXPECT_EQ(text_of(kernels.want("one", source)), "code of 1");
  workshop.join();
}

TEST(JitKernels, failures_leave_the_kernel_out_and_say_why) {
  const ScratchDirectory folder;
  Workshop workshop;
  workshop.no_load = "code of 2";
  workshop.may_compile.set_value();
  Kernels kernels(options_of(folder, Mode::kWait), tools_of(workshop));
  EXPECT_EQ(text_of(kernels.want("wrong", {.text = "wrong"})), "");
  EXPECT_EQ(text_of(kernels.want("two", {.text = "2"})), "");
  EXPECT_EQ(text_of(kernels.want("three", {.text = "3"})), "code of 3");
  workshop.join();
  EXPECT_EQ(kernels.states().at(0).state, "failed: line 1: wrong");
  EXPECT_EQ(kernels.states().at(1).state, "failed: no room");
}

TEST(JitKernels, without_a_compiler_nothing_waits) {
  const ScratchDirectory folder;
  for (const Mode mode : {Mode::kWait, Mode::kBackground}) {
    Workshop workshop;
    workshop.no_compiler = "NVRTC cannot be opened, tried x";
    Kernels kernels(options_of(folder, mode), tools_of(workshop));
    EXPECT_EQ(text_of(kernels.want("one", {.text = "1"})), "");
    EXPECT_EQ(text_of(kernels.want("two", {.text = "2"})), "");
    kernels.settle();
    workshop.join();
    EXPECT_EQ(kernels.states().at(1).state, "failed: NVRTC cannot be opened, tried x");
  }
}

// Full, not to be made, or not wanted: what was compiled serves all the same.
TEST(JitKernels, serve_without_a_cache) {
  const ScratchDirectory folder;
  std::ofstream(folder / "file") << "";
  for (const std::string& directory : {folder / "jit", folder / "file/jit", std::string("none")}) {
    Workshop workshop;
    workshop.may_compile.set_value();
    Kernels kernels({.mode = Mode::kWait, .library = "", .directory = directory},
                    tools_of(workshop));
    arm_failpoint("jit.store", 1);
    EXPECT_EQ(text_of(kernels.want("one", {.text = "1"})), "code of 1") << directory;
    workshop.join();
    disarm_failpoints();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "jit"));
}

TEST(JitKernels, keys_tell_all_that_code_depends_on) {
  const Header headers[] = {{"a.h", "int a;"}};
  const Source source{.text = "t", .headers = headers, .options = {"-a", "b"}, .entry = "e"};
  const std::string key = key_of(source);
  EXPECT_EQ(key.size(), 64u);
  Source other = source;
  other.options = {"-ab"};
  EXPECT_NE(key_of(other), key);
  other = source;
  other.headers = {};
  EXPECT_NE(key_of(other), key);
  EXPECT_EQ(key_of(source), key);
}

}  // namespace
}  // namespace fathom::jit
