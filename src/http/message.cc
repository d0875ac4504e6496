#include "http/message.h"

#include <algorithm>

namespace fathom::http {

std::string_view value_of(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

int count_of(const Headers& headers, std::string_view name) {
  return static_cast<int>(std::count_if(headers.begin(), headers.end(),
                                        [&](const auto& header) { return header.first == name; }));
}

std::string_view Request::header(std::string_view name) const { return value_of(headers, name); }

}  // namespace fathom::http
