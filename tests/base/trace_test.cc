#include "base/trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "base/json.h"

namespace fathom::trace {
namespace {

json::Value stop_and_parse() {
  Result<json::Value> trace = json::parse(stop());
  EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
  return trace ? *trace : json::Value();
}

// The events of one phase ("X", "i", "M") with their names.
std::multimap<std::string, json::Value> events_of(const json::Value& trace,
                                                  const std::string& phase) {
  std::multimap<std::string, json::Value> events;
  for (const json::Value& event : trace.at("traceEvents"))
    if (event.at("ph") == phase) events.emplace(event.at("name").get<std::string>(), event);
  return events;
}

TEST(Trace, RecordsNestedSpansWithTimesArgumentsAndThreadName) {
  ASSERT_TRUE(start({}));
  std::thread thread([] {
    set_thread_name("engine \"0\"");
    Span outer("sched", "plan");
    outer.arg("slices", 7);
    {
      const Span inner("sched", "admit");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    instant("sched", "retract");
  });
  thread.join();
  const json::Value trace = stop_and_parse();
  const auto spans = events_of(trace, "X");
  ASSERT_EQ(spans.size(), 2u);
  const json::Value& outer = spans.find("plan")->second;
  const json::Value& inner = spans.find("admit")->second;
  EXPECT_EQ(outer.at("cat"), "sched");
  EXPECT_EQ(outer.at("args").at("slices"), 7);
  EXPECT_FALSE(inner.contains("args"));
  EXPECT_GE(inner.at("dur").get<double>(), 2000);
  EXPECT_LE(outer.at("ts").get<double>(), inner.at("ts").get<double>());
  EXPECT_GE(outer.at("ts").get<double>() + outer.at("dur").get<double>(),
            inner.at("ts").get<double>() + inner.at("dur").get<double>());
  const auto instants = events_of(trace, "i");
  ASSERT_EQ(instants.count("retract"), 1u);
  EXPECT_EQ(instants.find("retract")->second.at("tid"), outer.at("tid"));
  const auto names = events_of(trace, "M");
  ASSERT_EQ(names.count("thread_name"), 1u);
  const json::Value& name = names.find("thread_name")->second;
  EXPECT_EQ(name.at("args").at("name"), "engine \"0\"");
  EXPECT_EQ(name.at("tid"), outer.at("tid"));
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 0);
}

TEST(Trace, RecordsNothingWhileItIsOff) {
  EXPECT_FALSE(recording());
  { const Span span("a", "before"); }
  EXPECT_TRUE(events_of(stop_and_parse(), "X").empty());
  ASSERT_TRUE(start({}));
  EXPECT_TRUE(recording());
  { const Span span("a", "during"); }
  const json::Value trace = stop_and_parse();
  EXPECT_EQ(events_of(trace, "X").size(), 1u);
  EXPECT_TRUE(events_of(stop_and_parse(), "X").empty()) << "a second stop() has nothing";
}

TEST(Trace, DropsSpansThatBeganBeforeTheRecordingOrEndAfterIt) {
  {
    const Span across_start("a", "across start");
    ASSERT_TRUE(start({}));
  }
  {
    const Span across_recordings("a", "across recordings");
    EXPECT_TRUE(events_of(stop_and_parse(), "X").empty());
    ASSERT_TRUE(start({}));
  }
  EXPECT_TRUE(events_of(stop_and_parse(), "X").empty());
}

TEST(Trace, DropsAndCountsWhatExceedsItsBounds) {
  ASSERT_TRUE(start({.max_events_per_thread = 10, .max_events = 15}));
  const auto record_30 = [] {
    for (int i = 0; i < 30; ++i) instant("a", "tick");
  };
  std::thread(record_30).join();
  std::thread(record_30).join();
  const json::Value trace = stop_and_parse();
  EXPECT_EQ(events_of(trace, "i").size(), 15u);
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 45);
}

TEST(Trace, RefusesASecondRecordingAndBoundsOfZero) {
  EXPECT_EQ(start({.max_events_per_thread = 0}).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(start({}));
  EXPECT_EQ(start({}).error().code, ErrorCode::kResourceEmpty);
  stop();
}

TEST(Trace, KeepsOnlyTwoArguments) {
  ASSERT_TRUE(start({}));
  {
    Span span("a", "b");
    span.arg("one", 1);
    span.arg("two", -2);
    span.arg("three", 3);
  }
  const auto spans = events_of(stop_and_parse(), "X");
  EXPECT_EQ(spans.find("b")->second.at("args"), json::Value({{"one", 1}, {"two", -2}}));
}

TEST(Trace, StartsAndStopsWhileThreadsRecord) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!done) {
        const Span span("a", "work");
        std::thread([] { instant("a", "short-lived"); }).join();
      }
    });
  size_t num_spans = 0;
  // On a busy machine the threads may not get to run in ten rounds.
  for (int i = 0; i < 10 || (num_spans == 0 && i < 10'000); ++i) {
    ASSERT_TRUE(start({.max_events_per_thread = 1000}));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    num_spans += events_of(stop_and_parse(), "X").size();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_spans, 0u);
}

}  // namespace
}  // namespace fathom::trace
