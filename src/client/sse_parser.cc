#include "client/sse_parser.h"

namespace fathom::client {

void SseParser::feed(std::string_view bytes) {
  while (!failed_ && !bytes.empty()) {
    const size_t line_feed = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, line_feed);
    if (partial_.size() + piece.size() > kMaxLineBytes) {
      failed_ = true;
      return;
    }
    if (line_feed == std::string_view::npos) {
      partial_.append(piece);
      return;
    }
    bytes.remove_prefix(line_feed + 1);
    if (partial_.empty()) {
      take_line(piece);
    } else {
      partial_.append(piece);
      take_line(partial_);
      partial_.clear();
    }
  }
}

void SseParser::take_line(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) {
    if (has_data_) on_event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (line.front() == ':') {
    ++num_comments_;
    return;
  }
  if (line.substr(0, 4) != "data" || (line.size() > 4 && line[4] != ':')) return;
  std::string_view value = line.substr(line.size() > 4 ? 5 : 4);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  if (data_.size() + value.size() >= kMaxLineBytes) {
    failed_ = true;
    return;
  }
  if (has_data_) data_.push_back('\n');
  data_.append(value);
  has_data_ = true;
}

}  // namespace fathom::client
