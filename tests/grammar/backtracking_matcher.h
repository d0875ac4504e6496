#pragma once
// A small backtracking matcher for ASCII patterns, as an oracle: slow, obvious, no shared code.
//
//   bool fits = matches_whole("(a|b)*abb", "aabb");

#include <functional>
#include <string>

namespace fathom::grammar::tests {

class BacktrackingMatcher {
 public:
  BacktrackingMatcher(const std::string& pattern, const std::string& text)
      : pattern_(pattern), text_(text) {}

  bool run() {
    return alternatives(0, pattern_.size(), 0, [&](size_t at) { return at == text_.size(); });
  }

 private:
  using Next = std::function<bool(size_t)>;

  // The end of the atom at p.
  size_t atom_end(size_t p) const {
    if (pattern_[p] == '\\')
      return p + (pattern_[p + 1] == 'x' ? 4 : pattern_[p + 1] == 'u' ? 6 : 2);
    if (pattern_[p] == '[') {
      for (++p; pattern_[p] != ']'; ++p) p += pattern_[p] == '\\';
      return p + 1;
    }
    if (pattern_[p] != '(') return p + 1;
    for (++p; pattern_[p] != ')';) p = atom_end(p);
    return p + 1;
  }

  bool alternatives(size_t begin, size_t end, size_t at, const Next& next) const {
    size_t from = begin;
    for (size_t p = begin; p < end; p = atom_end(p)) {
      if (pattern_[p] != '|') continue;
      if (parts(from, p, at, next)) return true;
      from = p + 1;
    }
    return parts(from, end, at, next);
  }

  bool parts(size_t begin, size_t end, size_t at, const Next& next) const {
    if (begin == end) return next(at);
    if (pattern_[begin] == '^') return at == 0 && parts(begin + 1, end, at, next);
    if (pattern_[begin] == '$') return at == text_.size() && parts(begin + 1, end, at, next);
    const size_t atom = atom_end(begin);
    size_t rest = atom;
    size_t min = 1, max = 1;
    if (rest < end && pattern_[rest] == '*')
      min = 0, max = 99, ++rest;
    else if (rest < end && pattern_[rest] == '+')
      max = 99, ++rest;
    else if (rest < end && pattern_[rest] == '?')
      min = 0, ++rest;
    else if (rest < end && pattern_[rest] == '{') {
      const size_t close = pattern_.find('}', rest), comma = pattern_.find(',', rest);
      min = max = std::stoul(pattern_.substr(rest + 1));
      if (comma < close) max = std::stoul(pattern_.substr(comma + 1));
      rest = close + 1;
    }
    if (rest < end && rest > atom && pattern_[rest] == '?') ++rest;
    return times(begin, atom, {min, max}, at,
                 [&, rest](size_t after) { return parts(rest, end, after, next); });
  }

  struct Times {
    size_t min, max;
  };
  bool times(size_t begin, size_t end, Times left, size_t at, const Next& next) const {
    if (left.min == 0 && next(at)) return true;
    if (left.max == 0) return false;
    return one(begin, end, at, [&](size_t after) {
      if (after == at && left.min == 0) return false;  // an empty turn leads nowhere new
      return times(begin, end, {left.min > 0 ? left.min - 1 : 0, left.max - 1}, after, next);
    });
  }

  bool one(size_t begin, size_t end, size_t at, const Next& next) const {
    if (pattern_[begin] == '(') {
      size_t inner = begin + 1;
      if (pattern_.compare(inner, 2, "?:") == 0) inner += 2;
      if (pattern_.compare(inner, 2, "?<") == 0) inner = pattern_.find('>', inner) + 1;
      return alternatives(inner, end - 1, at, next);
    }
    return at < text_.size() && fits(pattern_.substr(begin, end - begin), text_[at]) &&
           next(at + 1);
  }

  static bool fits(const std::string& atom, char c) {
    if (atom == ".") return c != '\n';
    if (atom == "\\d") return c >= '0' && c <= '9';
    if (atom == "[\\w]") return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (atom[0] == '\\') return c == static_cast<char>(std::stoul(atom.substr(2), nullptr, 16));
    if (atom[0] != '[') return atom[0] == c;
    const bool is_negated = atom[1] == '^';
    bool is_in = false;
    for (size_t i = is_negated ? 2 : 1; i + 1 < atom.size(); ++i) {
      if (atom[i + 1] == '-') {
        is_in |= c >= atom[i] && c <= atom[i + 2];
        i += 2;
      } else {
        is_in |= c == atom[i];
      }
    }
    return is_in != is_negated;
  }

  const std::string& pattern_;
  const std::string& text_;
};

inline bool matches_whole(const std::string& pattern, const std::string& text) {
  return BacktrackingMatcher(pattern, text).run();
}

}  // namespace fathom::grammar::tests
