// The GPU in a trace: kernels of decodes, launched one by one and as graphs, in the step that enqueued them.

#include <chrono>
#include <map>

#include "base/json.h"
#include "base/trace.h"
#include "cuda/profile/profile.h"
#include "tests/gpu/decoding.h"
#include "tests/gpu/gpu.h"

namespace fathom::gpu_test {
namespace {

class GpuTrace : public GpuTest {};

struct Step {
  double enqueued = 0, done = 0;  // microseconds: the host began to enqueue it, and had its result
  std::map<std::string, int> kernels;
  int num_copies = 0;
};

std::map<int64_t, Step> steps_of(const json::Value& trace) {
  std::map<int64_t, Step> steps;
  for (const json::Value& event : trace.at("traceEvents")) {
    if (!event.contains("args") || !event.at("args").contains("step")) continue;
    Step& step = steps[event.at("args").at("step").get<int64_t>()];
    const std::string name = event.at("name"), category = event.value("cat", "");
    if (category == "runner" && name == "enqueue") step.enqueued = event.at("ts");
    if (category == "kernel") ++step.kernels[name];
    if (category == "copy") ++step.num_copies;
  }
  return steps;
}

// Kernels lie between the moment the host began to enqueue their step and the end of the trace, in order.
void expect_on_the_clock_of_spans(const json::Value& trace, const std::map<int64_t, Step>& steps,
                                  double end_us) {
  double last_begin = 0;
  for (const json::Value& event : trace.at("traceEvents")) {
    if (event.value("cat", "") != "step") continue;
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GT(begin, steps.at(event.at("args").at("step").get<int64_t>()).enqueued);
    EXPECT_GT(begin, last_begin);
    EXPECT_LT(begin + duration, end_us);
    last_begin = begin;
  }
}

TEST_F(GpuTrace, has_the_kernels_of_every_step_with_and_without_graphs) {
  cuda::join_traces();
  for (const std::vector<int>& graphs : {std::vector<int>{}, std::vector<int>{4}}) {
    SCOPED_TRACE(graphs.empty() ? "launch by launch" : "graphs");
    const std::unique_ptr<runner::ModelRunner> runner = make_runner(graphs);
    const std::vector<testing::GoldenPrompt> prompts = testing::load_golden();
    const std::vector<Answer> plain = generate(*runner, prompts, testing::greedy(kNewTokens));
    const int64_t first_decode = runner->next_step_id() + 3;  // behind three prompts
    const Result<std::string> missing = trace::start({});
    ASSERT_TRUE(missing);
    ASSERT_EQ(*missing, "");
    const auto started = std::chrono::steady_clock::now();
    EXPECT_EQ(
        generate(*runner, {prompts[0], prompts[1], prompts[2]}, testing::greedy(kNewTokens)).size(),
        3u);
    const double end_us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - started)
            .count();
    const json::Value trace = json::parse(trace::stop()).value();
    const std::map<int64_t, Step> steps = steps_of(trace);
    // The prompts, the decodes behind the first token, the release.
    const int num_decodes = kNewTokens - 1;
    ASSERT_EQ(steps.size(), 3u + num_decodes + 1u);
    const Step& decode = steps.at(first_decode);
    EXPECT_GT(decode.kernels.size(), 10u) << "different kernels";
    EXPECT_GT(decode.num_copies, 0);
    for (int i = 1; i < num_decodes; ++i)
      EXPECT_EQ(steps.at(first_decode + i).kernels, decode.kernels) << "decode " << i;
    expect_on_the_clock_of_spans(trace, steps, end_us + 1000);
    // A recording changes no answer, nor does what comes after it.
    EXPECT_EQ(generate(*runner, prompts, testing::greedy(kNewTokens)), plain);
  }
}

}  // namespace
}  // namespace fathom::gpu_test
