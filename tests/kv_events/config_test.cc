#include "kv_events/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom::kv_events {
namespace {

using ::testing::HasSubstr;

std::string config_error(std::string_view text) {
  const auto config = parse_config(text);
  return config ? "" : config.error().message;
}

TEST(KvEventsConfig, is_read_as_vllm_and_sglang_write_it) {
  const auto of_vllm = parse_config(
      R"({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://10.0.0.9:5557",
          "replay_endpoint": "tcp://*:6557", "topic": "kv@pod@demo", "buffer_steps": 5, "hwm": 6,
          "max_queue_size": 7})");
  ASSERT_TRUE(of_vllm && *of_vllm);
  const PublisherConfig& config = **of_vllm;
  EXPECT_EQ(config.endpoint, "tcp://10.0.0.9:5557");
  EXPECT_EQ(config.replay_endpoint, "tcp://*:6557");
  EXPECT_EQ(config.topic, "kv@pod@demo");
  EXPECT_EQ(config.buffer_steps * 100 + config.hwm * 10 + config.max_queue_size, 567);
  const auto of_sglang = parse_config(R"({"publisher": "zmq", "topic": "kv"})");
  ASSERT_TRUE(of_sglang && *of_sglang);
  EXPECT_EQ((*of_sglang)->endpoint, "tcp://*:5557");
  EXPECT_TRUE(parse_config(R"({"enable_kv_cache_events": true})")->has_value());
}

TEST(KvEventsConfig, says_when_it_is_off) {
  EXPECT_FALSE(parse_config(R"({"publisher": "null"})")->has_value());
  EXPECT_FALSE(parse_config(R"({"enable_kv_cache_events": false})")->has_value());
  // vLLM publishes nothing then either.
  EXPECT_FALSE(
      parse_config(R"({"publisher": "zmq", "enable_kv_cache_events": false})")->has_value());
}

TEST(KvEventsConfig, is_refused_with_the_field_and_the_rule) {
  EXPECT_THAT(config_error("zmq"), HasSubstr("line 1"));
  EXPECT_THAT(config_error("[]"), HasSubstr("must be an object, such as {\"publisher\": \"zmq\""));
  EXPECT_THAT(config_error("{}"), HasSubstr("\"publisher\""));
  EXPECT_THAT(config_error(R"({"publisher": "kafka"})"), HasSubstr("\"zmq\""));
  EXPECT_THAT(config_error(R"({"publisher": "zmq", "endpoint": "5557"})"),
              HasSubstr("must be tcp://HOST:PORT or ipc://PATH"));
  EXPECT_THAT(config_error(R"({"publisher": "zmq", "endpoint": "tcp://*:99999"})"),
              HasSubstr("endpoint"));
  EXPECT_THAT(config_error(R"({"publisher": "zmq", "replay_endpoint": "tcp://*:5557"})"),
              HasSubstr("replay_endpoint"));
  EXPECT_THAT(config_error(R"({"publisher": "zmq", "hwm": 0})"), HasSubstr("hwm"));
  EXPECT_THAT(config_error(R"({"publisher": "zmq", "endpont": "tcp://*:1"})"),
              HasSubstr("\"endpont\" is none of publisher"));
}

TEST(KvEventsConfig, gives_each_lane_a_port) {
  EXPECT_EQ(*endpoint_of_lane("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(*endpoint_of_lane("tcp://[::]:5557", 3), "tcp://[::]:5560");
  EXPECT_EQ(*endpoint_of_lane("ipc:///tmp/a", 0), "ipc:///tmp/a");
  EXPECT_FALSE(endpoint_of_lane("ipc:///tmp/a", 1));
  EXPECT_FALSE(endpoint_of_lane("tcp://*:65535", 1));
}

TEST(KvEventsConfig, listens_where_there_is_a_wildcard) {
  for (const char* bound : {"tcp://*:1", "tcp://[::]:1", "tcp://0.0.0.0:1", "ipc:///tmp/a"})
    EXPECT_TRUE(is_bound(bound)) << bound;
  EXPECT_FALSE(is_bound("tcp://router:5557"));
}

}  // namespace
}  // namespace fathom::kv_events
