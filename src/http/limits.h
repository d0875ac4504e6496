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
  // At this number the connection that has been idle longest is closed for a new one; when none is idle, the new one is
  // answered if it is a probe, and with 503 otherwise.
  int max_connections = 20'000;
  int max_connections_per_address = 0;  // of one IPv4 address or IPv6 /64 network; 0: no limit
  int num_probe_connections = 32;       // beyond max_connections, for probes
  // Requests sent ahead of the answer: beyond this the socket is not read until the answer is out.
  size_t max_pipelined_bytes = 64 << 10;
  // Bytes of a stream that the client has not taken. A stream that stays above max_backlog_bytes for
  // Timeouts::write_stall is cut; one above hard_backlog_bytes is cut at the next write. Handlers hold back long before
  // (Exchange::backlog_bytes()).
  size_t max_backlog_bytes = 256 << 10;
  size_t hard_backlog_bytes = 4 << 20;
};

inline constexpr int64_t kBodyBytesPerSecond = 32 << 10;

struct Timeouts {
  using Duration = std::chrono::milliseconds;
  Duration header{10'000};     // first byte of a request to the end of its headers: 408
  Duration body_idle{30'000};  // between two pieces of a body: 408
  // From the end of the headers to the end of the body, plus a second for every kBodyBytesPerSecond that have come:
  // 408. So a slow line has time enough, and a client that sends a byte now and then cannot keep a connection.
  Duration body{60'000};
  Duration keep_alive{75'000};  // an idle connection is closed
  // The client takes nothing, or too little (Limits::max_backlog_bytes).
  Duration write_stall{30'000};
  // The client of a stream has not taken everything: Exchange::on_behind.
  Duration behind{2'000};
  Duration stream_comment{15'000};  // Exchange::begin_stream: after this silence of a stream
  // Reading what a client still sends after the last answer, so that it gets that answer.
  Duration linger{2'000};
};

}  // namespace fathom::http
