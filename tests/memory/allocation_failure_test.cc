// Every allocation of every kind of request fails once: the request is answered all the same, nothing is left behind,
// and the next request gets what it always got.
//
// The suite tries some hundred places of each kind; FATHOM_ALLOCATION_TEST=all tries every one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "base/memory.h"
#include "tests/http/raw_connection.h"
#include "tests/memory/failing_allocator.h"
#include "tests/memory/request_kinds.h"
#include "tests/scratch_directory.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve::tests {
namespace {

using fathom::tests::FailingAllocations;
using fathom::tests::RequestKind;
using http::tests::RawAnswer;
using http::tests::RawConnection;

// In the suite, of each kind and length of failure.
constexpr int64_t kMaxPlaces = 60;
constexpr int64_t kReserveBytes = int64_t{32} << 20;

// What a client reads: the pieces joined, or for the native API, whose events hold all so far, the last.
std::string text_of(const RequestKind& kind, const std::string& body) {
  if (kind.path.ends_with("tokenize") || kind.path.ends_with("count_tokens") ||
      kind.path == "/parse_function_call" || kind.path == "/separate_reasoning")
    return body;
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
    SimServerOptions options;
    options.profile_dir = profiles_.path();
    server_ = std::make_unique<SimServer>(options);
    memory::arm(kReserveBytes);
  }
  ~Failures() override { std::set_new_handler(nullptr); }

  RawAnswer ask(const RequestKind& kind, int64_t number) {
    std::string body = kind.body;
    for (size_t at = 0; (at = body.find('#', at)) != std::string::npos;)
      body.replace(at, 1, std::to_string(2 + number));
    RawConnection connection(server_->http().port());
    connection.send(kind.method + " " + kind.path +
                    " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
    return connection.read_answer();
  }

  // What the request needs to be there, or leaves behind; whatever it answers.
  void post(const std::string& path) {
    if (!path.empty()) ask({.name = path, .method = "POST", .path = path}, 0);
  }

  // The request as it is without failures, and how many allocations it makes.
  void try_all(const RequestKind& kind, int64_t count, bool every_place) {
    post(kind.before);
    const RawAnswer expected = ask(kind, ++num_tries_);
    post(kind.behind);
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

  RawAnswer with_failures(const fathom::tests::FailureRange& range, const RequestKind& kind,
                          bool& has_failed) {
    memory::refill();
    post(kind.before);
    RawAnswer answer;
    {
      const FailingAllocations failing(range);
      answer = ask(kind, ++num_tries_);
      has_failed = failing.has_failed();
    }
    post(kind.behind);
    return answer;
  }

  int64_t count_allocations(const RequestKind& kind) {
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

  void check_answer(const RequestKind& kind, const RawAnswer& expected, const RawAnswer& answer) {
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

  const ScratchDirectory profiles_;
  std::unique_ptr<SimServer> server_;
  const RequestKind canary_{
      "canary", "POST", "/generate",
      R"({"text":"A canary","sampling_params":{"max_new_tokens":9,"temperature":0}})"};
  std::string canary_text_;
  int64_t num_tries_ = 0;
};

// Paths of the API that are neither of a kind nor another name for such a one.
TEST_F(Failures, are_tried_at_every_path) {
  const std::vector<RequestKind> kinds = fathom::tests::request_kinds();
  const auto is_tried = [&](const std::string& path) {
    const std::string begin = path.substr(0, path.find('{'));
    return std::ranges::any_of(kinds, [&](const RequestKind& kind) {
      return begin.size() == path.size() ? kind.path == path : kind.path.starts_with(begin);
    });
  };
  const json::Value description = server_->get_json("/openapi.json");
  ASSERT_GT(description["paths"].size(), 20U);
  for (const auto& [path, methods] : description["paths"].items()) {
    const std::string summary = methods.front()["summary"].get<std::string>();
    if (summary.starts_with("as /")) continue;
    EXPECT_TRUE(is_tried(path)) << path << " is in no kind of tests/memory/request_kinds.cc";
  }
}

TEST_F(Failures, end_one_request_and_nothing_else) {
  const char* const wanted = std::getenv("FATHOM_ALLOCATION_TEST");
  const bool every_place = wanted != nullptr && std::string_view(wanted) == "all";
  check_nothing_is_left();
  for (const RequestKind& kind : fathom::tests::request_kinds()) {
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
