// A trace with a device in it: its recorder here is a list.

#include "base/device_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/trace.h"

namespace fathom::trace {
namespace {

using std::chrono::microseconds, std::chrono::steady_clock;

class ListedDevice : public DeviceRecorder {
 public:
  Status start(int64_t max_events) override {
    ++num_starts;
    max_events_asked = max_events;
    return problem.empty() ? Status() : Status(Error{ErrorCode::kNotFound, problem});
  }
  DeviceRecording stop() override {
    ++num_stops;
    return recording;
  }

  DeviceRecording recording{.device = "GPU 0", .names = {"gemm<8>", "copy to host"}};
  std::string problem;
  int num_starts = 0, num_stops = 0;
  int64_t max_events_asked = 0;
};

class DeviceTrace : public testing::Test {
 protected:
  DeviceTrace() { set_device_recorder(&device_); }
  ~DeviceTrace() override { set_device_recorder(nullptr); }

  // A step's enqueueing, and a moment inside it.
  static TimePoint enqueue(int64_t step) {
    Span span("runner", "enqueue");
    span.arg("step", step);
    std::this_thread::sleep_for(microseconds(50));
    return steady_clock::now();
  }

  void add(TimePoint launched, TimePoint begin, int64_t us) {
    device_.recording.events.push_back({.category = "kernel",
                                        .name_idx = 0,
                                        .stream = 13,
                                        .launched = launched,
                                        .begin = begin,
                                        .end = begin + microseconds(us),
                                        .grid = {132, 2, 1},
                                        .block = {256, 1, 1}});
  }

  // Events of the device by category, and what is said of the whole.
  std::multimap<std::string, json::Value> stop_and_parse() {
    const json::Value trace = json::parse(stop()).value();
    other_ = trace.at("otherData");
    std::multimap<std::string, json::Value> events;
    for (const json::Value& event : trace.at("traceEvents"))
      if (event.at("pid") == 2) events.emplace(event.value("cat", "name"), event);
    return events;
  }

  ListedDevice device_;
  json::Value other_;
};

TEST_F(DeviceTrace, kernels_belong_to_the_step_that_launched_them_and_a_bar_spans_each_step) {
  ASSERT_TRUE(start({}));
  const TimePoint first = enqueue(7), second = enqueue(8);
  const TimePoint outside = steady_clock::now();
  // The device is behind: when step 7 runs, step 8 has been enqueued.
  const TimePoint device_begin = outside + microseconds(100);
  add(first, device_begin, 10);
  add(first, device_begin + microseconds(15), 5);
  add(second, device_begin + microseconds(30), 10);
  add(outside, device_begin + microseconds(50), 1);
  const auto events = stop_and_parse();
  std::vector<json::Value> steps;
  for (auto [it, end] = events.equal_range("kernel"); it != end; ++it) {
    EXPECT_EQ(it->second.at("name"), "gemm<8>");
    EXPECT_EQ(it->second.at("tid"), 13);
    EXPECT_EQ(it->second.at("args").at("grid"), json::Value({132, 2, 1}));
    EXPECT_EQ(it->second.at("args").at("block"), json::Value({256, 1, 1}));
    steps.push_back(it->second.at("args").value("step", json::Value("none")));
  }
  EXPECT_EQ(steps, (std::vector<json::Value>{7, 7, 8, "none"}));
  std::map<int, json::Value> bars;
  for (auto [it, end] = events.equal_range("step"); it != end; ++it)
    bars.emplace(it->second.at("args").at("step").get<int>(), it->second);
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_EQ(bars.at(7).at("name"), "step 7");
  EXPECT_NEAR(bars.at(7).at("dur").get<double>(), 20, 1e-6);
  EXPECT_NEAR(bars.at(8).at("dur").get<double>(), 10, 1e-6);
  EXPECT_NEAR(bars.at(8).at("ts").get<double>() - bars.at(7).at("ts").get<double>(), 30, 2e-3);
}

// Two ranks enqueue the same step, one of them for longer: what it launches after the other is done is of that step.
TEST_F(DeviceTrace, kernels_belong_to_the_step_of_their_rank_while_others_enqueue_too) {
  ASSERT_TRUE(start({}));
  TimePoint late{};
  {
    Span span("runner", "enqueue");
    span.arg("step", 7);
    std::thread([] { enqueue(7); }).join();
    std::this_thread::sleep_for(microseconds(50));
    late = steady_clock::now();
  }
  add(late, steady_clock::now(), 10);
  const auto events = stop_and_parse();
  ASSERT_EQ(events.count("kernel"), 1u);
  EXPECT_EQ(events.find("kernel")->second.at("args").value("step", json::Value("none")), 7);
}

TEST_F(DeviceTrace, copies_have_bytes_and_lines_have_names) {
  ASSERT_TRUE(start({.max_device_events = 12}));
  EXPECT_EQ(device_.max_events_asked, 12);
  const TimePoint begin = steady_clock::now();
  device_.recording.events.push_back({.category = "copy",
                                      .name_idx = 1,
                                      .stream = 13,
                                      .begin = begin,
                                      .end = begin + microseconds(3),
                                      .num_bytes = 4096});
  device_.recording.events.push_back(device_.recording.events.back());
  device_.recording.events.back().device = 1;
  device_.recording.num_dropped = 5;
  const auto events = stop_and_parse();
  ASSERT_EQ(events.count("copy"), 2u);
  EXPECT_EQ(events.find("copy")->second.at("args"), json::Value({{"bytes", 4096}}));
  EXPECT_EQ(other_.at("dropped_device_events"), 5);
  std::vector<json::Value> names;
  for (auto [it, end] = events.equal_range("name"); it != end; ++it)
    names.push_back(it->second.at("args").at("name"));
  EXPECT_EQ(names, (std::vector<json::Value>{"GPU 0", "stream 13", "GPU 1 stream 13", "steps"}));
}

TEST_F(DeviceTrace, what_ran_before_the_recording_is_not_in_it) {
  const TimePoint before = steady_clock::now() - microseconds(500);
  ASSERT_TRUE(start({}));
  add(before, before, 10);
  EXPECT_EQ(stop_and_parse().count("kernel"), 0u);
}

TEST_F(DeviceTrace, a_device_that_does_not_record_leaves_the_host_and_a_reason) {
  device_.problem = "no library";
  const Result<std::string> missing = start({});
  ASSERT_TRUE(missing);
  EXPECT_EQ(*missing, "no library");
  EXPECT_TRUE(stop_and_parse().empty());
  EXPECT_EQ(other_.at("device_missing"), "no library");
  EXPECT_EQ(device_.num_stops, 0);
  device_.problem.clear();
  EXPECT_EQ(start({}).value(), "");
  stop_and_parse();
  EXPECT_EQ(device_.num_stops, 1);
  EXPECT_FALSE(other_.contains("device_missing"));
}

TEST_F(DeviceTrace, a_second_start_and_a_second_stop_do_not_reach_the_device) {
  ASSERT_TRUE(start({}));
  EXPECT_FALSE(start({}));
  stop();
  stop();
  EXPECT_EQ(device_.num_starts, 1);
  EXPECT_EQ(device_.num_stops, 1);
}

std::vector<std::string> heard;

TEST(SpanListenerTest, hears_spans_in_pairs_with_and_without_a_recording) {
  set_listener(
      {.begin = [](const char* category,
                   const char* name) { heard.push_back(std::string(category) + "/" + name); },
       .end = [] { heard.push_back("end"); }});
  {
    const Span outer("a", "outer");
    const Span inner("a", "inner");
  }
  EXPECT_EQ(heard, (std::vector<std::string>{"a/outer", "a/inner", "end", "end"}));
  EXPECT_FALSE(recording());
  heard.clear();
  ASSERT_TRUE(start({}));
  { const Span span("a", "both"); }
  EXPECT_EQ(heard, (std::vector<std::string>{"a/both", "end"}));
  EXPECT_NE(stop().find("\"both\""), std::string::npos);
  set_listener({});
}

}  // namespace
}  // namespace fathom::trace
