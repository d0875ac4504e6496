// Every allocation of every kind of request fails once: the request is answered all the same, nothing is left behind,
// and the next request gets what it always got.
//
// The suite tries some hundred places of each kind; FATHOM_ALLOCATION_TEST=all tries every one.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "base/memory.h"
#include "tests/http/raw_connection.h"
#include "tests/memory/failing_allocator.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve::tests {
namespace {

using fathom::tests::FailingAllocations;
using http::tests::RawAnswer;
using http::tests::RawConnection;

// In the suite, of each kind and length of failure.
constexpr int64_t kMaxPlaces = 60;
constexpr int64_t kReserveBytes = int64_t{32} << 20;

struct Kind {
  std::string name, method, path;
  std::string body{};  // "#" stands for the number of the try: a grammar that is new is compiled
  bool streams = false;
  bool is_exact = true;  // its texts are the same each time
};

std::string chat(const std::string& more) {
  return R"({"messages":[{"role":"system","content":"Be short."},{"role":"user","content":"Some apples"}],)"
         R"("max_tokens":6,"temperature":0,"ignore_eos":true)" +
         more + "}";
}

std::string messages(const std::string& more) {
  return R"({"system":"Be short.","messages":[{"role":"user","content":[{"type":"text","text":"Some apples"}]}],)"
         R"("max_tokens":6,"temperature":0)" +
         more + "}";
}

std::string responses(const std::string& more) {
  return R"({"instructions":"Be short.","input":[{"role":"user","content":"Some apples"}],)"
         R"("max_output_tokens":6,"temperature":0)" +
         more + "}";
}

std::string completion(const std::string& more) {
  return R"({"prompt":"Some apples","max_tokens":6,"temperature":0,"ignore_eos":true)" + more + "}";
}

std::string generate(const std::string& sampling, const std::string& more) {
  return R"({"text":"Some apples","sampling_params":{"max_new_tokens":6,"temperature":0)" +
         sampling + "}" + more + "}";
}

std::vector<Kind> kinds() {
  const std::string schema =
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)"
      R"({"type":"object","properties":{"p#":{"type":"integer"},"q":{"enum":["a","b"]}},"required":["p#"]}}})";
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"f#","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}],"tool_choice":"required")";
  const std::string chat_path = "/v1/chat/completions", completion_path = "/v1/completions";
  return {
      {"chat", "POST", chat_path, chat("")},
      {"chat_stream", "POST", chat_path, chat(R"(,"stream":true,"logprobs":true,"top_logprobs":2)"),
       true},
      {"chat_schema", "POST", chat_path, chat(schema), false, false},
      {"chat_schema_stream", "POST", chat_path, chat(schema + R"(,"stream":true)"), true, false},
      {"chat_tools", "POST", chat_path, chat(tools), false, false},
      {"messages", "POST", "/v1/messages", messages("")},
      {"messages_stream", "POST", "/v1/messages", messages(R"(,"stream":true)"), true},
      {"responses", "POST", "/v1/responses", responses("")},
      {"responses_stream", "POST", "/v1/responses", responses(R"(,"stream":true)"), true},
      {"completion", "POST", completion_path, completion(R"(,"logprobs":3,"echo":true,"n":2)")},
      {"completion_stream", "POST", completion_path, completion(R"(,"stream":true,"stop":["zz"])"),
       true},
      {"completion_batch", "POST", completion_path,
       R"({"prompt":["one","two","three"],"max_tokens":3,"temperature":0})"},
      {"generate", "POST", "/generate", generate("", R"(,"return_logprob":true)")},
      {"generate_stream", "POST", "/generate", generate("", R"(,"stream":true)"), true},
      {"generate_regex", "POST", "/generate", generate(R"(,"regex":"[a-z]{3}(x#)+")", ""), false,
       false},
      {"generate_ebnf", "POST", "/generate",
       generate(R"(,"ebnf":"root ::= \"a#\" | \"b\" root")", ""), false, false},
      {"tokenize", "POST", "/tokenize",
       R"({"prompt":"Some apples and many more words","user":[[],{"a":[1]}]})"},
      {"tokenize_long", "POST", "/tokenize", R"({"prompt":")" + std::string(300'000, 'a') + "\"}"},
      {"tokenize_chat", "POST", "/tokenize",
       R"({"messages":[{"role":"user","content":"Some apples"}]})"},
      {"detokenize", "POST", "/detokenize", R"({"tokens":[[5,6,7],[8]]})"},
      {"bad_json", "POST", completion_path, R"({"prompt":"x","y":[1,}")"},
      {"bad_field", "POST", completion_path, R"({"prompt":"x","max_tokens":-4})"},
      {"models", "GET", "/v1/models"},
      {"server_info", "GET", "/server_info"},
      {"metrics", "GET", "/metrics"},
      {"stats", "GET", "/stats"},
      {"health", "GET", "/health_generate"},
      {"abort", "POST", "/abort_request", R"({"rid":"nobody"})"},
      {"unknown", "GET", "/nothing"},
  };
}

// What a client reads: the pieces joined, or for the native API, whose events hold all so far, the last.
std::string text_of(const Kind& kind, const std::string& body) {
  if (kind.path.ends_with("tokenize")) return body;
  static const std::regex text(R"re("(?:text|content|tokens)":("(?:[^"\\]|\\.)*"|\[[^a-z]*?\]))re");
  std::string joined;
  for (auto i = std::sregex_iterator(body.begin(), body.end(), text); i != std::sregex_iterator();
       ++i) {
    if (kind.path == "/generate") joined.clear();
    joined += (*i)[1];
  }
  return joined;
}

class Failures : public testing::Test {
 protected:
  Failures() {
    fathom::tests::exempt_this_thread();
    server_ = std::make_unique<SimServer>();
    memory::arm(kReserveBytes);
  }
  ~Failures() override { std::set_new_handler(nullptr); }

  RawAnswer ask(const Kind& kind, int64_t number) {
    std::string body = kind.body;
    for (size_t at = 0; (at = body.find('#', at)) != std::string::npos;)
      body.replace(at, 1, std::to_string(2 + number));
    RawConnection connection(server_->http().port());
    connection.send(kind.method + " " + kind.path +
                    " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
    return connection.read_answer();
  }

  // The request as it is without failures, and how many allocations it makes.
  void try_all(const Kind& kind, int64_t count, bool every_place) {
    const RawAnswer expected = ask(kind, ++num_tries_);
    ASSERT_GT(expected.status, 0);
    const int64_t num_places = count_allocations(kind);
    const int64_t step = every_place ? 1 : std::max<int64_t>(1, num_places / kMaxPlaces);
    int num_failed = 0;
    for (int64_t first = 1; first <= num_places && !HasFatalFailure(); first += step) {
      SCOPED_TRACE(kind.name + ", allocation " + std::to_string(first) + " and " +
                   std::to_string(count - 1) + " more");
      bool has_failed = false;
      const RawAnswer answer = with_failures({.first = first, .count = count}, kind, has_failed);
      num_failed += has_failed ? 1 : 0;
      check_answer(kind, expected, answer);
      check_nothing_is_left();
    }
    EXPECT_GT(num_failed, 0) << kind.name;
    std::printf("%-20s %6ld allocations, %5d requests met a failure of %ld\n", kind.name.c_str(),
                num_places, num_failed, count);
  }

  RawAnswer with_failures(const fathom::tests::FailureRange& range, const Kind& kind,
                          bool& has_failed) {
    memory::refill();
    const FailingAllocations failing(range);
    RawAnswer answer = ask(kind, ++num_tries_);
    has_failed = failing.has_failed();
    return answer;
  }

  int64_t count_allocations(const Kind& kind) {
    int64_t most = 1;
    // The first that no longer fails; doubling, then halving.
    const auto fails = [&](int64_t first) {
      bool has_failed = false;
      with_failures({.first = first, .count = 1}, kind, has_failed);
      return has_failed;
    };
    while (fails(most) && most < 1 << 24) most *= 2;
    int64_t least = most / 2;
    while (most - least > 1 + least / 32) {
      const int64_t middle = (least + most) / 2;
      (fails(middle) ? least : most) = middle;
    }
    return most;
  }

  void check_answer(const Kind& kind, const RawAnswer& expected, const RawAnswer& answer) {
    ASSERT_GT(answer.status, 0) << "no answer";
    if (answer.status == 503) {
      EXPECT_NE(answer.body.find("memory"), std::string::npos) << answer.body;
      return;
    }
    ASSERT_EQ(answer.status, expected.status) << answer.body;
    const auto has = [&](const char* text) { return answer.body.find(text) != std::string::npos; };
    const bool has_error_event = kind.streams && (has("{\"error\":") || has("event: error\n") ||
                                                  has("event: response.failed\n"));
    if (has_error_event) {
      EXPECT_NE(answer.body.find("memory"), std::string::npos) << answer.body;
    } else if (kind.is_exact) {
      EXPECT_EQ(text_of(kind, answer.body), text_of(kind, expected.body));
    }
  }

  void check_nothing_is_left() {
    const auto is_clean = [&] {
      const engine::EngineSnapshot now = server_->engine().snapshot();
      return !now.has_work && now.num_used_blocks() == 0 &&
             server_->api().num_open_requests() == 0 &&
             server_->http().counters().bodies_bytes == 0 &&
             server_->http().counters().active_exchanges == 0;
    };
    ASSERT_TRUE(server_->eventually(is_clean)) << "something is left";
    ASSERT_EQ(server_->engine().snapshot().num_violations, 0);
    const RawAnswer canary = ask(canary_, 0);
    ASSERT_EQ(canary.status, 200) << canary.body;
    const std::string text = text_of(canary_, canary.body);
    if (canary_text_.empty()) canary_text_ = text;
    ASSERT_FALSE(text.empty());
    ASSERT_EQ(text, canary_text_);
  }

  std::unique_ptr<SimServer> server_;
  const Kind canary_{
      "canary", "POST", "/generate",
      R"({"text":"A canary","sampling_params":{"max_new_tokens":9,"temperature":0}})"};
  std::string canary_text_;
  int64_t num_tries_ = 0;
};

TEST_F(Failures, end_one_request_and_nothing_else) {
  const char* const wanted = std::getenv("FATHOM_ALLOCATION_TEST");
  const bool every_place = wanted != nullptr && std::string_view(wanted) == "all";
  check_nothing_is_left();
  for (const Kind& kind : kinds()) {
    for (const int64_t count : {1, 12}) {
      try_all(kind, count, every_place);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(memory::counts().num_failures, 0);
  EXPECT_GT(memory::counts().num_reserve_uses, 0);
}

}  // namespace
}  // namespace fathom::serve::tests
