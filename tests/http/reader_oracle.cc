#include "tests/http/reader_oracle.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>
#include <map>

#include "base/check.h"
#include "http/header_syntax.h"

namespace fathom::http::tests {
namespace {

namespace beast_http = boost::beast::http;

std::string describe(const RequestHead& head) {
  std::string text =
      head.method + " " + head.target + " " + std::to_string(head.version_minor) + "\n";
  for (const auto& [name, value] : head.headers) text += name + ": " + value + "\n";
  return text;
}

using Message = beast_http::request<beast_http::string_body>;

std::string describe(const Message& message) {
  std::string text(message.method_string());
  text += " " + std::string(message.target()) + " " + std::to_string(message.version() - 10) + "\n";
  for (const auto& field : message)
    text += to_lower({field.name_string().data(), field.name_string().size()}) + ": " +
            std::string(field.value()) + "\n";
  return text;
}

// Beast puts fields of one name together and keeps trailers, which ours drops: of each name, our values come
// first among Beast's.
bool is_same_head(const RequestHead& ours, const Message& beast) {
  if (ours.method != beast.method_string() || ours.target != beast.target() ||
      ours.version_minor + 10 != static_cast<int>(beast.version()))
    return false;
  std::map<std::string, std::vector<std::string>> of_ours, of_beast;
  for (const auto& [name, value] : ours.headers) of_ours[name].push_back(value);
  for (const auto& field : beast)
    of_beast[to_lower({field.name_string().data(), field.name_string().size()})].emplace_back(
        field.value());
  for (const auto& [name, values] : of_ours) {
    const auto& others = of_beast[name];
    if (values.size() > others.size() || !std::equal(values.begin(), values.end(), others.begin()))
      return false;
  }
  return ours.is_chunked || of_beast.size() == of_ours.size();
}

// Beast also counts Proxy-Connection, which means nothing to a server.
bool has_proxy_connection(const RequestHead& head) {
  return std::any_of(head.headers.begin(), head.headers.end(),
                     [](const auto& header) { return header.first == "proxy-connection"; });
}

}  // namespace

ReadOutcome read_requests(std::string_view bytes, const Limits& limits, size_t piece_bytes) {
  ReadOutcome outcome;
  RequestReader reader(limits);
  size_t taken = 0;
  while (taken < bytes.size() && reader.state() != RequestReader::State::kFailed) {
    const size_t piece = piece_bytes == 0 ? bytes.size() - taken : piece_bytes;
    taken += reader.feed(bytes.substr(taken, piece));
    if (reader.state() == RequestReader::State::kHeadComplete) reader.begin_body();
    if (reader.state() != RequestReader::State::kComplete) continue;
    outcome.requests.push_back({reader.head(), reader.take_body()});
    outcome.num_taken = taken;
    reader.reset();
  }
  outcome.state = reader.state();
  if (outcome.state == RequestReader::State::kFailed)
    outcome.error = static_cast<int>(reader.error());
  return outcome;
}

std::string difference(const ReadOutcome& a, const ReadOutcome& b) {
  if (a.requests.size() != b.requests.size())
    return std::to_string(a.requests.size()) + " requests and " + std::to_string(b.requests.size());
  for (size_t i = 0; i < a.requests.size(); ++i) {
    if (describe(a.requests[i].head) != describe(b.requests[i].head) ||
        a.requests[i].head.keeps_alive != b.requests[i].head.keeps_alive ||
        a.requests[i].body != b.requests[i].body)
      return "request " + std::to_string(i) + " differs";
  }
  if (a.num_taken != b.num_taken) return "another end of the last request";
  if (a.state != b.state || a.error != b.error)
    return "state " + std::to_string(static_cast<int>(a.state)) + " error " +
           std::to_string(a.error) + " and state " + std::to_string(static_cast<int>(b.state)) +
           " error " + std::to_string(b.error);
  return "";
}

std::string difference_to_beast(std::string_view bytes, const ReadOutcome& outcome) {
  std::string_view rest = bytes.substr(0, outcome.num_taken);
  for (const ReadOutcome::Read& read : outcome.requests) {
    // The empty line that we skip; Beast does not.
    if (rest.substr(0, 2) == "\r\n") rest.remove_prefix(2);
    beast_http::request_parser<beast_http::string_body> parser;
    parser.eager(true);
    parser.header_limit(std::numeric_limits<uint32_t>::max());
    parser.body_limit(std::numeric_limits<uint64_t>::max());
    while (!parser.is_done() && !rest.empty()) {
      boost::system::error_code error;
      const size_t taken = parser.put(boost::asio::buffer(rest.data(), rest.size()), error);
      rest.remove_prefix(taken);
      if (error && error != beast_http::error::need_more)
        return "Beast refuses: " + error.message();
      if (taken == 0) return "Beast needs more";
    }
    if (!parser.is_done()) return "Beast needs more at the end";
    if (!is_same_head(read.head, parser.get()))
      return "Beast reads\n" + describe(parser.get()) + "\nand we\n" + describe(read.head);
    if (parser.get().body() != read.body) return "Beast reads another body";
    // To close where Beast would not is safe.
    if (read.head.keeps_alive && !parser.keep_alive() && !has_proxy_connection(read.head))
      return "Beast would close";
  }
  return rest.empty() ? "" : "Beast leaves " + std::to_string(rest.size()) + " bytes";
}

void check_reader(std::string_view bytes, const Limits& limits) {
  const ReadOutcome whole = read_requests(bytes, limits, 0);
  for (const size_t piece_bytes : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{64}}) {
    const std::string split = difference(whole, read_requests(bytes, limits, piece_bytes));
    FATHOM_CHECK(split.empty(), "pieces of " << piece_bytes << ": " << split);
  }
  const std::string beast = difference_to_beast(bytes, whole);
  FATHOM_CHECK(beast.empty(), beast);
}

}  // namespace fathom::http::tests
