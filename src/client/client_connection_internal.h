#pragma once
// ClientConnection: one connection of a Client, carrying one request at a time. Only .cc files of this module
// include it (it brings Asio).
//
//   auto connection = std::make_shared<ClientConnection>(std::move(stream));
//   connection->exchange(call, [](Outcome outcome) { ... });     // once per call
//
// Used on the client's thread only. Held by its pending operations and by the client's pool.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/client.h"
#include "client/stream_internal.h"

namespace fathom::client {

class ClientConnection;

// A request on its way.
struct ClientCall {
  Client::RequestId id = 0;
  ClientRequest request;
  ClientCallbacks callbacks;
  ClientResponse response;
  std::string bytes;  // the request as sent
  std::string pool_key;
  size_t max_body_bytes = 0;
  Clock::time_point begun, last_progress;
  bool has_answer_begun = false;
  int num_tries = 0;
  std::weak_ptr<ClientConnection> connection;
};

class ClientConnection : public std::enable_shared_from_this<ClientConnection> {
 public:
  // error empty: the answer is whole; reusable: the next request may use this connection.
  using Done = std::function<void(const std::string& error, bool reusable)>;

  ClientConnection(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  Stream& stream() { return *stream_; }
  bool is_used() const { return is_used_; }
  void exchange(std::shared_ptr<ClientCall> call, Done done);
  // Ends the exchange under way, if any, with this error.
  void abort(const std::string& error);

 private:
  class AnswerParser;

  void write_rest();
  void read_more();
  void on_read(error_code error, size_t num_bytes);
  void finish(const std::string& error);

  std::unique_ptr<Stream> stream_;
  bool is_used_ = false;
  std::shared_ptr<ClientCall> call_;
  Done done_;
  std::shared_ptr<AnswerParser> parser_;
  std::string input_;  // read, not yet parsed
  std::vector<char> read_buffer_;
  size_t written_ = 0;
};

}  // namespace fathom::client
