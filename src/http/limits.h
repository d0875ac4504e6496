#pragma once
// What one connection, one request and the whole transport may take. Each limit is checked before memory is
// allocated for what it bounds; the status in the comment is the answer to what exceeds it.
//
//   ServerConfig config;
//   config.limits.max_body_bytes = int64_t{8} << 20;
//   config.timeouts.header = std::chrono::seconds(1);
//
// Plain data.

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fathom::http {

struct Limits {
  size_t max_request_line_bytes = 8 << 10;  // 414, without the line end
  size_t max_header_line_bytes = 16 << 10;  // 431, without the line end
  size_t max_head_bytes = 64 << 10;         // 431, request line, headers and their line ends
  size_t max_headers = 100;                 // 431
  int64_t max_body_bytes = 64 << 20;        // 413
  size_t max_chunks = 65'536;               // 413, chunks of one body
  // 503, bodies of all requests in work; 413 for one that is larger by itself.
  int64_t max_bodies_bytes = int64_t{2} << 30;
  // Beyond these the connection that idles longest gives way; when none does, only probes are answered, others with
  // 503.
  int max_connections = 20'000;
  int max_connections_per_address = 0;  // of one IPv4 address or IPv6 /64 network; 0: no limit
  int num_probe_connections = 32;       // beyond max_connections, for probes
  // Requests sent ahead of the answer: beyond this the socket is not read until the answer is out.
  size_t max_pipelined_bytes = 64 << 10;
  // A stream whose unsent bytes stay above the first for Timeouts::write_stall is cut; one that is written to
  // while they are above the second, at once. Handlers stop writing well before (Exchange::backlog_bytes()).
  size_t max_backlog_bytes = 256 << 10;
  size_t hard_backlog_bytes = 4 << 20;
};

inline constexpr int64_t kBodyBytesPerSecond = 32 << 10;

struct Timeouts {
  using Duration = std::chrono::milliseconds;
  Duration header{10'000};     // first byte of a request to the end of its headers: 408
  Duration body_idle{30'000};  // between two pieces of a body: 408
  // From the end of the headers to the end of the body, and a second more for every kBodyBytesPerSecond that have come:
  // 408. A slow line gets its time, a drip does not keep a connection.
  Duration body{60'000};
  Duration keep_alive{75'000};  // an idle connection is closed
  // The client takes nothing, or too little (Limits::max_backlog_bytes).
  Duration write_stall{30'000};
  Duration stream_comment{15'000};  // ": keep-alive" after this silence of a stream
  // Reading what a client still sends after the last answer, so that it gets that answer.
  Duration linger{2'000};
};

}  // namespace fathom::http
