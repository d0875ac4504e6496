#include "http/response_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "base/check.h"
#include "http/header_syntax.h"

namespace fathom::http {
namespace {

// A line end in a value would begin another header, or another answer.
void append_header(std::string_view name, std::string_view value, std::string* out) {
  out->append(name).append(": ");
  std::transform(value.begin(), value.end(), std::back_inserter(*out), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f ? ' ' : c;
  });
  out->append("\r\n");
}

void append_status_and_date(int status, const AnswerContext& context, std::string* out) {
  out->append("HTTP/1.1 ").append(std::to_string(status)).append(" ");
  out->append(reason_phrase(status)).append("\r\n");
  append_header("Date", context.date, out);
}

void append_common(const AnswerContext& context, std::string* out) {
  append_header("x-content-type-options", "nosniff", out);
  if (!context.request_id.empty()) append_header("x-request-id", context.request_id, out);
  if (!context.cors_origin.empty()) {
    append_header("Access-Control-Allow-Origin", context.cors_origin, out);
    append_header("Access-Control-Expose-Headers", "x-request-id", out);
  }
  if (context.varies_by_origin) append_header("Vary", "Origin", out);
  if (!context.keeps_alive) {
    append_header("Connection", "close", out);
  } else if (context.version_minor == 0) {
    append_header("Connection", "keep-alive", out);
  }
}

bool has_no_body(int status) { return status == 204 || status == 304; }

}  // namespace

std::string whole_head(const Response& response, const AnswerContext& context, size_t room) {
  std::string out;
  out.reserve(512 + room);
  append_status_and_date(response.status, context, &out);
  if (!has_no_body(response.status)) {
    if (!response.body.empty()) append_header("Content-Type", response.content_type, &out);
    append_header("Content-Length", std::to_string(response.body.size()), &out);
  }
  append_common(context, &out);
  for (const auto& [name, value] : response.headers) {
    FATHOM_CHECK(is_token(name), "a header's name is not a token");
    append_header(name, value, &out);
  }
  return out.append("\r\n");
}

bool sends_body(const Response& response, const AnswerContext& context) {
  return !context.is_head && !has_no_body(response.status);
}

std::string whole_answer(const Response& response, const AnswerContext& context) {
  std::string out = whole_head(response, context, response.body.size());
  if (sends_body(response, context)) out.append(response.body);
  return out;
}

std::string stream_head(const AnswerContext& context) {
  std::string out;
  append_status_and_date(200, context, &out);
  append_header("Content-Type", "text/event-stream; charset=utf-8", &out);
  append_header("Cache-Control", "no-cache", &out);
  append_header("X-Accel-Buffering", "no", &out);
  if (context.version_minor == 1) append_header("Transfer-Encoding", "chunked", &out);
  append_common(context, &out);
  return out.append("\r\n");
}

void append_chunk(std::string_view data, std::string* out) {
  std::array<char, 16> digits = {};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), data.size(), 16).ptr;
  out->append(digits.data(), end).append("\r\n").append(data).append("\r\n");
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string http_date_now() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  // strftime would take the names from the locale.
  std::array<char, 64> text = {};
  const int length = std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                                   kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                                   utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return {text.data(), static_cast<size_t>(length)};
}

}  // namespace fathom::http
