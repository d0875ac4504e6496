#pragma once
// ChunkDecoder: a chunked body (RFC 9112, 7.1) cut anywhere, read strictly: sizes are plain hex digits, line
// ends are CRLF, extensions and trailers are checked and dropped.
//
//   ChunkDecoder decoder(limits);
//   const size_t taken = decoder.feed(bytes, &body);     // body grows by the data
//   if (decoder.error()) ...  else if (decoder.done()) rest = bytes.substr(taken);
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/limits.h"
#include "http/transport_error.h"

namespace fathom::http {

class ChunkDecoder {
 public:
  static constexpr size_t kMaxSizeLineBytes = 256;  // size and extensions, without the line end

  explicit ChunkDecoder(const Limits& limits) : limits_(&limits) {}
  // Takes bytes up to the end of the body; returns how many. The body's size is bounded before it grows.
  size_t feed(std::string_view bytes, std::string* body);
  bool done() const { return state_ == State::kDone; }
  const std::optional<TransportError>& error() const { return error_; }

 private:
  enum class State { kSizeLine, kData, kDataEnd, kTrailer, kDone };

  size_t take_line(std::string_view bytes, size_t max_line_bytes, bool* complete);
  size_t take_data(std::string_view bytes, std::string* body);
  void on_size_line(size_t body_bytes);
  void on_trailer_line();
  void fail(TransportError error) { error_ = error; }

  const Limits* limits_;
  State state_ = State::kSizeLine;
  std::optional<TransportError> error_;
  std::string line_;  // without its end once complete
  uint64_t left_in_chunk_ = 0;
  size_t num_chunks_ = 0, trailer_bytes_ = 0, num_trailers_ = 0;
};

}  // namespace fathom::http
