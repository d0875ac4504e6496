#include "http/request_reader.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "http/header_syntax.h"

namespace fathom::http {
namespace {

constexpr size_t kMaxMethodBytes = 32;
constexpr size_t kMaxLengthDigits = 18;  // below 2^63
// A body grows by what has come, not by what its head promises.
constexpr size_t kMaxReservedBytes = 64 << 10;
// Once this much has come, room is made for all of it: a long body would be moved again and again, each time for
// milliseconds in which the thread does nothing else.
constexpr size_t kTrustedBytes = 1 << 20;

bool is_target_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > 0x20 && byte < 0x7f;
}

}  // namespace

size_t RequestReader::feed(std::string_view bytes) {
  if (state_ == State::kHead) return feed_head(bytes);
  if (state_ == State::kBody) return feed_body(bytes);
  return 0;
}

void RequestReader::fail(TransportError error) {
  error_ = error;
  state_ = State::kFailed;
}

void RequestReader::reset() {
  const Limits* limits = limits_;
  *this = RequestReader(*limits);
}

size_t RequestReader::feed_head(std::string_view bytes) {
  size_t taken = 0;
  while (state_ == State::kHead && taken < bytes.size()) {
    const std::string_view rest = bytes.substr(taken);
    const bool is_request_line = num_lines_ == 0;
    // What begins like no HTTP request (a TLS hello, for example) is refused at its first byte.
    if (is_request_line && line_.empty() && !is_token_char(rest[0]) && rest[0] != '\r')
      return fail(TransportError::kBadRequestLine), bytes.size();
    const size_t max_line_bytes =
        is_request_line ? limits_->max_request_line_bytes : limits_->max_header_line_bytes;
    const size_t line_feed = rest.find('\n');
    const size_t num = std::min(line_feed, rest.size());
    const size_t line_bytes = line_.size() + num;
    const bool has_end = line_feed != std::string_view::npos;
    // A line may be one byte above its limit if that byte is the CR of its end; the head's limit counts line ends too.
    const bool may_end = num > 0 ? rest[num - 1] == '\r' : line_bytes > 0 && line_.back() == '\r';
    if (line_bytes > max_line_bytes + (may_end ? 1 : 0))
      return fail(is_request_line ? TransportError::kUriTooLong : TransportError::kHeadTooLarge),
             bytes.size();
    if (head_bytes_ + line_bytes + (has_end ? 1 : 0) > limits_->max_head_bytes)
      return fail(TransportError::kHeadTooLarge), bytes.size();
    line_.append(rest.substr(0, num));
    taken += num;
    if (!has_end) break;
    ++taken;
    head_bytes_ += line_.size() + 1;
    on_head_line();
    line_.clear();
  }
  return taken;
}

void RequestReader::on_head_line() {
  const TransportError malformed =
      num_lines_ == 0 ? TransportError::kBadRequestLine : TransportError::kBadHeader;
  if (line_.empty() || line_.back() != '\r') return fail(malformed);
  line_.pop_back();
  if (num_lines_ == 0) {
    // One empty line before a request is an old client's line end after a body (RFC 9112, 2.2).
    if (line_.empty() && !skipped_empty_line_) {
      skipped_empty_line_ = true;
      return;
    }
    on_request_line();
  } else if (line_.empty()) {
    on_head_end();
  } else {
    on_header_line();
  }
  ++num_lines_;
}

void RequestReader::on_request_line() {
  const std::string_view line = line_;
  const size_t first_space = line.find(' ');
  const size_t last_space = line.rfind(' ');
  if (first_space == std::string_view::npos || first_space == last_space)
    return fail(TransportError::kBadRequestLine);
  const std::string_view method = line.substr(0, first_space);
  const std::string_view target = line.substr(first_space + 1, last_space - first_space - 1);
  const std::string_view version = line.substr(last_space + 1);
  if (!is_token(method) || method.size() > kMaxMethodBytes || target.empty() ||
      !std::all_of(target.begin(), target.end(), is_target_char))
    return fail(TransportError::kBadRequestLine);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return fail(TransportError::kBadVersion);
  head_.method = method;
  head_.target = target;
  head_.version_minor = version.back() - '0';
  head_.keeps_alive = head_.version_minor == 1;
}

void RequestReader::on_header_line() {
  if (head_.headers.size() == limits_->max_headers) return fail(TransportError::kHeadTooLarge);
  std::optional<HeaderLine> line = parse_header_line(line_);
  if (!line) return fail(TransportError::kBadHeader);
  const std::string& name = line->name;
  const std::string& value = line->value;
  if (name == "host") {
    if (++num_hosts_ > 1 || !is_valid_host(value)) return fail(TransportError::kBadHost);
  } else if (name == "content-length") {
    if (++num_lengths_ > 1 || !take_length(value)) return fail(TransportError::kBadContentLength);
  } else if (name == "transfer-encoding") {
    if (++num_codings_ > 1 || head_.version_minor == 0 || !equals_ignoring_case(value, "chunked"))
      return fail(TransportError::kBadTransferEncoding);
    head_.is_chunked = true;
  } else if (name == "content-encoding") {
    // An empty list of codings says that there is none.
    if (!value.empty() && !equals_ignoring_case(value, "identity"))
      return fail(TransportError::kContentEncoding);
  } else if (name == "expect") {
    if (!equals_ignoring_case(value, "100-continue")) return fail(TransportError::kExpectation);
    // HTTP/1.0 has no interim answers.
    head_.expects_continue = head_.version_minor == 1;
  } else if (name == "connection") {
    if (!is_token_list(value)) return fail(TransportError::kBadHeader);
    // Whichever of several comes first.
    says_close_ = says_close_ || list_has_token(value, "close");
    if (head_.version_minor == 0 && list_has_token(value, "keep-alive")) head_.keeps_alive = true;
    if (says_close_) head_.keeps_alive = false;
  } else if (name == "proxy-connection") {
    if (!is_token_list(value)) return fail(TransportError::kBadHeader);
  }
  head_.headers.emplace_back(std::move(line->name), std::move(line->value));
}

bool RequestReader::take_length(std::string_view value) {
  if (value.empty() || value.size() > kMaxLengthDigits) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::all_of(value.begin(), value.end(), is_digit)) return false;
  std::from_chars(value.data(), value.data() + value.size(), head_.content_length);
  return true;
}

void RequestReader::on_head_end() {
  if (num_hosts_ == 0 && head_.version_minor == 1) return fail(TransportError::kBadHost);
  if (num_lengths_ > 0 && num_codings_ > 0) return fail(TransportError::kBadContentLength);
  if (head_.content_length > limits_->max_body_bytes) return fail(TransportError::kBodyTooLarge);
  state_ = State::kHeadComplete;
}

void RequestReader::begin_body() {
  FATHOM_CHECK(state_ == State::kHeadComplete, "state " << static_cast<int>(state_));
  std::string().swap(line_);
  if (!head_.has_body()) {
    state_ = State::kComplete;
    return;
  }
  body_.reserve(std::min(static_cast<size_t>(head_.content_length), kMaxReservedBytes));
  state_ = State::kBody;
}

void RequestReader::make_room(size_t num_bytes) {
  const size_t needed = body_.size() + num_bytes;
  const auto length = static_cast<size_t>(head_.content_length);
  if (needed > body_.capacity() && needed > kTrustedBytes) body_.reserve(length);
}

size_t RequestReader::feed_body(std::string_view bytes) {
  if (head_.is_chunked) {
    const size_t taken = chunks_.feed(bytes, &body_);
    if (chunks_.error()) {
      fail(*chunks_.error());
    } else if (chunks_.done()) {
      state_ = State::kComplete;
    }
    return taken;
  }
  const auto length = static_cast<size_t>(head_.content_length);
  const size_t num = std::min(length - body_.size(), bytes.size());
  make_room(num);
  body_.append(bytes.substr(0, num));
  if (body_.size() == length) state_ = State::kComplete;
  return num;
}

}  // namespace fathom::http
