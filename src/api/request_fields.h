#pragma once
// Fields that more than one endpoint has: the body itself, the model's name, the stream and the cache
// salt.
//
//   Parsed<json::Members> parsed = parse_body(body);
//   read_model(reader, model, request);
//
// Pure, thread-safe.

#include <cstdint>
#include <span>
#include <string_view>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/field_reader.h"
#include "base/json_fwd.h"
#include "base/json_members.h"

namespace fathom::api {

// What the values of a body may take of memory: this, and so many times its length. What it costs is bounded by its
// length (http::Limits::max_bodies_bytes bounds that of all), and ordinary bodies come nowhere near: text is as long
// as a value as it was, and an id of five digits four times as long.
inline constexpr int64_t kMaxValueBytes = 128 << 20;
inline constexpr int64_t kMaxValueBytesPerByte = 6;

// One JSON object, at most 64 levels deep, without duplicate keys. The body outlives its members. What they build is
// bounded as above: 413.
Parsed<json::Members> parse_body(std::string_view body);

// `model`: another one than ours is a 404.
void read_model(FieldReader& reader, const ServedModel& model, GenerationRequest& request);
// include_stop_str_in_output, vLLM's name of no_stop_trim.
void read_stop_form(FieldReader& reader, GenerationItem& item);
// stream, stream_options; what other servers' clients say beside them: usage, options.
void read_stream(FieldReader& reader, GenerationRequest& request);
// priority, cache_salt, extra_key.
void read_placement(FieldReader& reader, const ServedModel& model, GenerationRequest& request);
// A client's own id: 1 to 128 bytes without control characters.
std::optional<std::string> read_request_id(const json::Value& value, const std::string& path,
                                           const ServedModel& model, FieldProblem& problem);
// rid, or vLLM's request_id.
void read_rid(FieldReader& reader, const ServedModel& model, GenerationRequest& request);

}  // namespace fathom::api
