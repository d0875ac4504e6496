#include "http/chunk_decoder.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "http/header_syntax.h"

namespace fathom::http {
namespace {

// Length of the quoted string at the front, 0 if there is none. Escapes are refused: no client needs them, and
// readers differ on them.
size_t quoted_length(std::string_view text) {
  const size_t end = text.find('"', 1);
  if (text.empty() || text.front() != '"' || end == std::string_view::npos) return 0;
  for (const char c : text.substr(1, end - 1)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || (c != '\t' && (byte < 0x20 || byte >= 0x7f))) return 0;
  }
  return end + 1;
}

size_t token_length(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_token_char) -
                             text.begin());
}

// ;name or ;name=token or ;name="text", any number of them; white space only after the semicolon.
bool are_extensions(std::string_view text) {
  while (!text.empty()) {
    if (text.front() != ';') return false;
    text.remove_prefix(std::min(text.find_first_not_of(" \t", 1), text.size()));
    const size_t name_length = token_length(text);
    if (name_length == 0) return false;
    text.remove_prefix(name_length);
    if (text.empty() || text.front() != '=') continue;
    text.remove_prefix(1);
    const size_t length = std::max(token_length(text), quoted_length(text));
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// Hex digits, then extensions.
std::optional<uint64_t> parse_size_line(std::string_view line) {
  const size_t digits_end = std::min(line.find(';'), line.size());
  uint64_t size = 0;
  const char* end = line.data() + digits_end;
  const auto [stop, error] = std::from_chars(line.data(), end, size, 16);
  if (error != std::errc() || stop != end || digits_end > 16) return std::nullopt;
  if (!are_extensions(line.substr(digits_end))) return std::nullopt;
  return size;
}

// What frames, routes or authorises a message must stand in its head (RFC 9110, 6.5.1): a reader that merged it
// from a trailer would see another request.
bool may_be_trailer(std::string_view name) {
  constexpr std::string_view kForbidden[] = {
      "transfer-encoding", "content-length",   "host",
      "connection",        "expect",           "proxy-connection",
      "authorization",     "content-encoding", "x-api-key"};
  return std::find(std::begin(kForbidden), std::end(kForbidden), name) == std::end(kForbidden);
}

}  // namespace

size_t ChunkDecoder::feed(std::string_view bytes, std::string* body) {
  size_t taken = 0;
  while (!error_ && state_ != State::kDone && taken < bytes.size()) {
    const std::string_view rest = bytes.substr(taken);
    if (state_ == State::kData) {
      taken += take_data(rest, body);
      continue;
    }
    const size_t max_line_bytes = state_ == State::kSizeLine  ? kMaxSizeLineBytes
                                  : state_ == State::kDataEnd ? 0
                                                              : limits_->max_header_line_bytes;
    bool complete = false;
    taken += take_line(rest, max_line_bytes, &complete);
    if (error_ || !complete) continue;
    if (state_ == State::kSizeLine) {
      on_size_line(body->size());
    } else if (state_ == State::kDataEnd) {
      state_ = State::kSizeLine;
    } else {
      on_trailer_line();
    }
    line_.clear();
  }
  return taken;
}

size_t ChunkDecoder::take_line(std::string_view bytes, size_t max_line_bytes, bool* complete) {
  const auto too_long = [&] {
    fail(state_ == State::kTrailer ? TransportError::kHeadTooLarge : TransportError::kBadChunk);
  };
  const size_t line_feed = bytes.find('\n');
  const size_t num = std::min(line_feed, bytes.size());
  // One byte more: the CR of the line end.
  if (line_.size() + num > max_line_bytes + 1) return too_long(), bytes.size();
  line_.append(bytes.substr(0, num));
  if (line_feed == std::string_view::npos) {
    // Its end has not come. One byte above the limit may be the CR before it; anything else is too long.
    if (line_.size() > max_line_bytes && line_.back() != '\r') too_long();
    return num;
  }
  if (line_.empty() || line_.back() != '\r') return fail(TransportError::kBadChunk), num;
  line_.pop_back();
  *complete = true;
  return num + 1;
}

size_t ChunkDecoder::take_data(std::string_view bytes, std::string* body) {
  const auto num = static_cast<size_t>(std::min<uint64_t>(left_in_chunk_, bytes.size()));
  body->append(bytes.substr(0, num));
  left_in_chunk_ -= num;
  if (left_in_chunk_ == 0) state_ = State::kDataEnd;
  return num;
}

void ChunkDecoder::on_size_line(size_t body_bytes) {
  const std::optional<uint64_t> size = parse_size_line(line_);
  if (!size) return fail(TransportError::kBadChunk);
  if (*size == 0) {
    state_ = State::kTrailer;
    return;
  }
  if (++num_chunks_ > limits_->max_chunks) return fail(TransportError::kTooManyChunks);
  const auto max_body_bytes = static_cast<uint64_t>(limits_->max_body_bytes);
  if (*size > max_body_bytes || body_bytes + *size > max_body_bytes)
    return fail(TransportError::kBodyTooLarge);
  left_in_chunk_ = *size;
  state_ = State::kData;
}

void ChunkDecoder::on_trailer_line() {
  if (line_.empty()) {
    state_ = State::kDone;
    return;
  }
  trailer_bytes_ += line_.size() + 2;
  if (++num_trailers_ > limits_->max_headers || trailer_bytes_ > limits_->max_head_bytes)
    return fail(TransportError::kHeadTooLarge);
  const std::optional<HeaderLine> line = parse_header_line(line_);
  if (!line || !may_be_trailer(line->name)) fail(TransportError::kBadChunk);
}

}  // namespace fathom::http
