#include "text/known_templates.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace fathom::text {
namespace {

struct KnownTemplate {
  ChatFormat format;
  std::span<const uint32_t> pieces;  // hashes
};

#include "text/known_templates.inc"

constexpr size_t kMaxShownBytes = 100;

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// A tag, or what stands between two, without the white space that does not count.
struct Piece {
  std::string text;
  size_t begin = 0, end = 0;  // in the source
};

class PieceReader {
 public:
  explicit PieceReader(std::string_view source) : source_(source) {}

  // False: the end.
  bool next(Piece& piece) {
    while (at_ < source_.size()) {
      piece = {.text = "", .begin = at_};
      const std::string_view rest = source_.substr(at_);
      if (rest.starts_with("{#")) {
        skip_comment();
        continue;
      }
      const bool is_tag = rest.starts_with("{{") || rest.starts_with("{%");
      is_tag ? read_tag(piece) : read_text(piece);
      piece.end = at_;
      if (!piece.text.empty()) return true;
    }
    return false;
  }

 private:
  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    at_ = end == source_.npos ? source_.size() : end + 2;
  }

  void read_text(Piece& piece) {
    while (at_ < source_.size() && !opens_tag(at_)) {
      if (!is_space(source_[at_])) piece.text += source_[at_];
      ++at_;
    }
  }

  bool opens_tag(size_t at) const {
    const std::string_view two = source_.substr(at, 2);
    return two == "{{" || two == "{%" || two == "{#";
  }

  // A '-' at its edges is about white space outside, too.
  void read_tag(Piece& piece) {
    const std::string_view end = source_[at_ + 1] == '{' ? "}}" : "%}";
    piece.text = source_.substr(at_, 2);
    at_ += 2;
    if (at_ < source_.size() && source_[at_] == '-') ++at_;
    while (at_ < source_.size() && !source_.substr(at_).starts_with(end)) {
      const char c = source_[at_];
      if (c == '\'' || c == '"') {
        read_literal(piece);
      } else {
        if (!is_space(c)) piece.text += c;
        ++at_;
      }
    }
    if (piece.text.ends_with('-')) piece.text.pop_back();
    piece.text += end;
    at_ = std::min(source_.size(), at_ + 2);
  }

  // As it is, but for line breaks, which may be written as such or as \n.
  void read_literal(Piece& piece) {
    const char quote = source_[at_];
    piece.text += quote;
    for (++at_; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] == '\n') {
        piece.text += "\\n";
        continue;
      }
      piece.text += source_[at_];
      if (source_[at_] == '\\' && at_ + 1 < source_.size()) piece.text += source_[++at_];
    }
    piece.text += quote;
    at_ = std::min(source_.size(), at_ + 1);
  }

  std::string_view source_;
  size_t at_ = 0;
};

// FNV-1a.
uint32_t hash_of(std::string_view text) {
  uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

std::string shown(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (!is_space(c)) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (line.size() <= kMaxShownBytes) return line;
  size_t end = kMaxShownBytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return line.substr(0, end) + "...";
}

int line_at(std::string_view source, size_t at) {
  return 1 + static_cast<int>(
                 std::count(source.begin(), source.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

}  // namespace

bool has_published_templates(ChatFormat format) {
  return std::ranges::any_of(kKnownTemplates,
                             [&](const KnownTemplate& known) { return known.format == format; });
}

std::optional<UnpublishedPart> unpublished_part(ChatFormat format, std::string_view source) {
  if (!has_published_templates(format)) return std::nullopt;
  std::vector<std::span<const uint32_t>> alike;  // that go on as the source has gone so far
  for (const KnownTemplate& known : kKnownTemplates) {
    if (known.format == format) alike.push_back(known.pieces);
  }
  PieceReader reader(source);
  size_t num_pieces = 0;
  for (Piece piece; reader.next(piece); ++num_pieces) {
    const uint32_t hash = hash_of(piece.text);
    std::erase_if(alike, [&](std::span<const uint32_t> known) {
      return num_pieces >= known.size() || known[num_pieces] != hash;
    });
    if (!alike.empty()) continue;
    const size_t first = source.find_first_not_of(" \t\r\n", piece.begin);
    return UnpublishedPart{.text = shown(source.substr(first, piece.end - first)),
                           .line = line_at(source, first)};
  }
  const bool is_whole = std::ranges::any_of(
      alike, [&](std::span<const uint32_t> known) { return known.size() == num_pieces; });
  if (is_whole) return std::nullopt;
  return UnpublishedPart{.text = "", .line = line_at(source, source.size())};
}

}  // namespace fathom::text
