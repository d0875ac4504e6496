#include "http/message.h"

namespace fathom::http {

std::string_view value_of(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string_view Request::header(std::string_view name) const { return value_of(headers, name); }

}  // namespace fathom::http
