#pragma once
// MalformedGenerator: the pieces from which malformed_requests.cc and malformed_framing.cc build their tables.
//
//   MalformedGenerator generator(options);
//   std::vector<MalformedRequest> requests = generator.all();
//
// Borrows the options. Not synchronised.

#include <string>
#include <utility>
#include <vector>

#include "tests/http/malformed_requests.h"

namespace fathom::http::tests {

class MalformedGenerator {
 public:
  explicit MalformedGenerator(const MalformedOptions& options) : options_(options) {}
  std::vector<MalformedRequest> all();

 private:
  void add(const std::string& name, std::string bytes,
           MalformedRequest::Expect expect = MalformedRequest::Expect::kRejected) {
    requests_.push_back({name, std::move(bytes), expect});
  }
  std::string get(const std::string& headers) const {
    return "GET " + options_.get_path + " HTTP/1.1\r\nHost: a\r\n" + options_.extra_headers +
           headers + "\r\n";
  }
  std::string post(const std::string& headers, const std::string& body) const {
    return "POST " + options_.post_path + " HTTP/1.1\r\nHost: a\r\n" + options_.extra_headers +
           headers + "\r\n" + body;
  }
  std::string line(const std::string& request_line) const {
    return request_line + "\r\nHost: a\r\n" + options_.extra_headers + "\r\n";
  }

  // malformed_framing.cc: where a body ends.
  void lengths();
  void codings();
  void chunks();
  // malformed_requests.cc: everything else.
  void names();
  void request_lines();
  void targets();
  void hosts();
  void control_characters();
  void limits();
  void mutations();

  const MalformedOptions& options_;
  std::vector<MalformedRequest> requests_;
};

}  // namespace fathom::http::tests
