#pragma once
// Answers as bytes: heads, chunks. Control characters in a header value become spaces, so that no value can
// begin a line of its own.
//
//   std::string bytes = whole_answer(response, {.version_minor = 1, .keeps_alive = true, .request_id = id});
//
// Pure functions, thread-safe.

#include <string>
#include <string_view>

#include "http/message.h"

namespace fathom::http {

struct AnswerContext {
  int version_minor = 1;
  bool keeps_alive = true;
  bool is_head = false;  // the request was HEAD: no body follows
  std::string_view request_id = {}, cors_origin = {}, date = {};
  bool varies_by_origin = false;  // other origins get another Access-Control-Allow-Origin
};

// Content-Length included. `room`: for what will be appended.
std::string whole_head(const Response& response, const AnswerContext& context, size_t room = 0);
bool sends_body(const Response& response, const AnswerContext& context);
// Both, of a body that is not large.
std::string whole_answer(const Response& response, const AnswerContext& context);
// The head of a stream of events: chunked for HTTP/1.1; for 1.0 the stream ends when the connection closes.
std::string stream_head(const AnswerContext& context);
void append_chunk(std::string_view data, std::string* out);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::string_view reason_phrase(int status);
// The wall clock as a Date header's value.
std::string http_date_now();

}  // namespace fathom::http
