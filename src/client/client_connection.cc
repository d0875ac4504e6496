#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>
#include <utility>

#include "client/client_connection_internal.h"
#include "http/header_syntax.h"

namespace fathom::client {
namespace {

namespace beast_http = boost::beast::http;
using boost::beast::string_view;

constexpr size_t kReadBytes = 8 << 10;
constexpr uint32_t kMaxHeadBytes = 64 << 10;

std::string_view to_std(string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Beast's parser, filling the call's response. It is Beast's on purpose: the server under test must satisfy
// somebody else's reader.
class ClientConnection::AnswerParser final : public beast_http::basic_parser<false> {
 public:
  explicit AnswerParser(ClientCall* call) : call_(call) {
    eager(true);
    // No limit: 1.74 takes boost::none for zero.
    body_limit(std::numeric_limits<uint64_t>::max());
    header_limit(kMaxHeadBytes);
    skip(call->request.method == "HEAD");
  }

 private:
  void on_request_impl(beast_http::verb, string_view, string_view, int, error_code&) override {}
  void on_response_impl(int status, string_view, int, error_code&) override {
    call_->response.status = status;
  }
  void on_field_impl(beast_http::field, string_view name, string_view value, error_code&) override {
    call_->response.headers.emplace_back(http::to_lower(to_std(name)), to_std(value));
  }
  void on_header_impl(error_code&) override {
    if (call_->response.status != 100 && call_->callbacks.on_head)
      call_->callbacks.on_head(call_->response);
  }
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view bytes, error_code& error) override { return take(bytes, error); }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view bytes, error_code& error) override {
    return take(bytes, error);
  }
  void on_finish_impl(error_code&) override {}

  size_t take(string_view bytes, error_code& error) {
    if (call_->callbacks.on_body) {
      call_->callbacks.on_body(to_std(bytes));
    } else if (call_->response.body.size() + bytes.size() > call_->max_body_bytes) {
      error = beast_http::error::body_limit;
    } else {
      call_->response.body.append(to_std(bytes));
    }
    return bytes.size();
  }

  ClientCall* call_;
};

void ClientConnection::exchange(std::shared_ptr<ClientCall> call, Done done) {
  call_ = std::move(call);
  done_ = std::move(done);
  call_->connection = weak_from_this();
  parser_ = std::make_shared<AnswerParser>(call_.get());
  input_.clear();
  written_ = 0;
  if (read_buffer_.empty()) read_buffer_.resize(kReadBytes);
  write_rest();
  read_more();
}

void ClientConnection::write_rest() {
  stream_->write_some(
      asio::buffer(call_->bytes) + written_,
      [self = shared_from_this(), call = call_](error_code error, size_t num_bytes) {
        // A server may answer and close before it has read everything: the read tells.
        if (error || self->call_ != call) return;
        self->written_ += num_bytes;
        call->last_progress = system_clock().now();
        if (self->written_ < call->bytes.size()) self->write_rest();
      });
}

void ClientConnection::read_more() {
  stream_->read_some(asio::buffer(read_buffer_),
                     [self = shared_from_this(), call = call_](error_code error, size_t num_bytes) {
                       if (self->call_ == call) self->on_read(error, num_bytes);
                     });
}

void ClientConnection::on_read(error_code error, size_t num_bytes) {
  const auto call = call_;
  const auto parser = parser_;
  if (error) {
    error_code at_end;
    if (error == asio::error::eof && parser->got_some()) parser->put_eof(at_end);
    if (error == asio::error::eof && parser->is_done() && !at_end) return finish("");
    return finish(error == asio::error::eof ? "connection closed" : error.message());
  }
  call->has_answer_begun = true;
  call->last_progress = system_clock().now();
  input_.append(read_buffer_.data(), num_bytes);
  while (!input_.empty() && !parser_->is_done()) {
    error_code bad;
    const size_t taken = parser_->put(asio::buffer(input_), bad);
    if (call_ != call) return;  // a callback cancelled it
    input_.erase(0, taken);
    if (bad == beast_http::error::need_more) break;
    if (bad) return finish(bad.message());
    if (parser_->is_done() && call->response.status == 100) {
      call->response = {};
      parser_ = std::make_shared<AnswerParser>(call.get());
    }
  }
  if (parser_->is_done()) return finish("");
  read_more();
}

void ClientConnection::abort(const std::string& error) {
  if (call_ != nullptr) finish(error);
}

void ClientConnection::finish(const std::string& error) {
  is_used_ = true;
  const auto call = std::exchange(call_, nullptr);
  const Done done = std::exchange(done_, nullptr);
  const bool reusable = error.empty() && parser_->keep_alive() && !parser_->need_eof() &&
                        input_.empty() && written_ == call->bytes.size();
  if (!reusable) stream_->close();
  done(error, reusable);
}

}  // namespace fathom::client
