#pragma once
// SseParser: server-sent events out of bytes as they arrive, cut anywhere (HTML living standard, 9.2.6; the
// fields that matter here: data and event, comments are counted).
//
//   SseParser parser([&](std::string_view data) { ... });   // "[DONE]" is data like any other
//   parser.feed(bytes);
//
// Line ends are LF or CRLF. Lines and events longer than kMaxLineBytes end the parse (failed()). Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace fathom::client {

class SseParser {
 public:
  static constexpr size_t kMaxLineBytes = 64 << 20;
  // data: the event's data lines joined by LF; valid during the call.
  using OnEvent = std::function<void(std::string_view data)>;

  explicit SseParser(OnEvent on_event) : on_event_(std::move(on_event)) {}
  void feed(std::string_view bytes);
  bool failed() const { return failed_; }
  int64_t num_comments() const { return num_comments_; }

 private:
  void take_line(std::string_view line);

  OnEvent on_event_;
  std::string partial_;  // a line whose end has not come
  std::string data_;
  bool has_data_ = false, failed_ = false;
  int64_t num_comments_ = 0;
};

}  // namespace fathom::client
