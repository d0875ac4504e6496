#include "grammar/expressions/unicode_sets.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "grammar/expressions/code_points.h"

namespace fathom::grammar {
namespace {

using Ranges = std::vector<CodePointRange>;

struct UnicodeRun {
  char32_t first, last;
  uint32_t value;
};
struct UnicodeName {
  std::string_view name, other;
  uint32_t value;
};
// first, first + step, ... last: each with the one that is `distance` further.
struct CasePairs {
  char32_t first, last, step;
  int32_t distance;
};

#include "grammar/expressions/unicode_properties.inc"

// Long names of categories, and what they are short for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 37> kLongNames = {
    {{"Letter", "L"},
     {"Cased_Letter", "LC"},
     {"Uppercase_Letter", "Lu"},
     {"Lowercase_Letter", "Ll"},
     {"Titlecase_Letter", "Lt"},
     {"Modifier_Letter", "Lm"},
     {"Other_Letter", "Lo"},
     {"Mark", "M"},
     {"Combining_Mark", "M"},
     {"Nonspacing_Mark", "Mn"},
     {"Spacing_Mark", "Mc"},
     {"Enclosing_Mark", "Me"},
     {"Number", "N"},
     {"Decimal_Number", "Nd"},
     {"digit", "Nd"},
     {"Letter_Number", "Nl"},
     {"Other_Number", "No"},
     {"Punctuation", "P"},
     {"punct", "P"},
     {"Connector_Punctuation", "Pc"},
     {"Dash_Punctuation", "Pd"},
     {"Open_Punctuation", "Ps"},
     {"Close_Punctuation", "Pe"},
     {"Initial_Punctuation", "Pi"},
     {"Final_Punctuation", "Pf"},
     {"Other_Punctuation", "Po"},
     {"Symbol", "S"},
     {"Math_Symbol", "Sm"},
     {"Currency_Symbol", "Sc"},
     {"Modifier_Symbol", "Sk"},
     {"Other_Symbol", "So"},
     {"Separator", "Z"},
     {"Space_Separator", "Zs"},
     {"Line_Separator", "Zl"},
     {"Paragraph_Separator", "Zp"},
     {"Control", "Cc"},
     {"Format", "Cf"}}};

template <size_t kSize, class Fits>
Ranges ranges_of(const UnicodeRun (&runs)[kSize], const Fits& fits) {
  Ranges ranges;
  for (const UnicodeRun& run : runs) {
    if (fits(run.value)) ranges.push_back({run.first, run.last});
  }
  return normalized(std::move(ranges));
}

const Ranges& assigned() {
  static const Ranges ranges = ranges_of(kCategoryRuns, [](uint32_t) { return true; });
  return ranges;
}

// Characters that are not assigned may be anything to a newer reader.
UnicodeSet with_unsure(Ranges narrow) {
  Ranges wide = complement(assigned());
  wide.insert(wide.end(), narrow.begin(), narrow.end());
  return {std::move(narrow), normalized(std::move(wide))};
}

std::optional<UnicodeSet> category(std::string_view name) {
  for (const auto& [long_name, short_name] : kLongNames) {
    if (name == long_name) name = short_name;
  }
  uint32_t wanted = 0;
  for (const UnicodeName& one : kCategoryNames) {
    const bool is_cased = one.name == "Lu" || one.name == "Ll" || one.name == "Lt";
    if (one.name == name || one.name.substr(0, 1) == name || (name == "LC" && is_cased))
      wanted |= uint32_t{1} << one.value;
  }
  // C holds what is not assigned.
  if (wanted == 0 || name[0] == 'C') {
    if (name != "Cc" && name != "Cf") return std::nullopt;
  }
  return with_unsure(
      ranges_of(kCategoryRuns, [&](uint32_t value) { return (wanted >> value & 1) != 0; }));
}

std::optional<UnicodeSet> script(std::string_view name, bool with_extensions) {
  for (const UnicodeName& one : kScriptNames) {
    if (one.name != name && one.other != name) continue;
    UnicodeSet set =
        with_unsure(ranges_of(kScriptRuns, [&](uint32_t value) { return value == one.value; }));
    // Which scripts a common or inherited character is used in beside is not in the tables.
    if (with_extensions) {
      const Ranges shared = ranges_of(kScriptRuns, [](uint32_t value) {
        return kScriptNames[value].name == "Common" || kScriptNames[value].name == "Inherited";
      });
      set.wide.insert(set.wide.end(), shared.begin(), shared.end());
      set.wide = normalized(std::move(set.wide));
    }
    return set;
  }
  return std::nullopt;
}

template <size_t kSize>
void append_cases(const CasePairs (&pairs)[kSize], const Ranges& ranges, Ranges& result) {
  for (const CodePointRange& range : ranges) {
    for (const CasePairs& pair : pairs) {
      if (pair.last < range.first || pair.first > range.last) continue;
      const char32_t from =
          range.first <= pair.first
              ? pair.first
              : pair.first + (range.first - pair.first + pair.step - 1) / pair.step * pair.step;
      const auto shifted = [&](char32_t c) {
        return static_cast<char32_t>(static_cast<int32_t>(c) + pair.distance);
      };
      const char32_t last = std::min(range.last, pair.last);
      if (pair.step == 1 && from <= last) {
        result.push_back({shifted(from), shifted(last)});
      } else {
        for (char32_t c = from; c <= last; c += pair.step)
          result.push_back({shifted(c), shifted(c)});
      }
    }
  }
}

}  // namespace

std::optional<UnicodeSet> unicode_property(std::string_view name) {
  if (const size_t equals = name.find('='); equals != name.npos) {
    const std::string_view key = name.substr(0, equals), value = name.substr(equals + 1);
    if (key == "gc" || key == "General_Category") return category(value);
    if (key == "sc" || key == "Script") return script(value, /*with_extensions=*/false);
    if (key == "scx" || key == "Script_Extensions") return script(value, /*with_extensions=*/true);
    return std::nullopt;
  }
  if (name == "Any") return UnicodeSet{complement({}), complement({})};
  if (name == "ASCII") return UnicodeSet{{{0, 0x7F}}, {{0, 0x7F}}};
  if (name == "Assigned") return UnicodeSet{assigned(), complement({})};
  for (const UnicodeName& one : kBinaryNames) {
    if (one.name != name && one.other != name) continue;
    return with_unsure(
        ranges_of(kBinaryRuns, [&](uint32_t value) { return (value & one.value) != 0; }));
  }
  return category(name);
}

const Ranges& any_word_characters() {
  static const Ranges ranges = [] {
    Ranges all = ranges_of(kBinaryRuns, [](uint32_t value) { return (value & kAnyWordBit) != 0; });
    // Rust also counts marks and the characters that join words.
    for (const std::string_view name : {"M", "Pc", "Alphabetic"}) {
      const Ranges more = unicode_property(name)->wide;
      if (name == "Alphabetic") all.insert(all.end(), more.begin(), more.end());
      const Ranges sure = unicode_property(name)->narrow;
      all.insert(all.end(), sure.begin(), sure.end());
    }
    all.push_back({0x200C, 0x200D});
    return normalized(std::move(all));
  }();
  return ranges;
}

const Ranges& any_digits() {
  static const Ranges ranges = unicode_property("Nd")->wide;
  return ranges;
}

Ranges with_other_case(const Ranges& ranges, bool generous) {
  Ranges result = ranges;
  append_cases(kCasePairs, ranges, result);
  if (generous) append_cases(kUnsureCasePairs, ranges, result);
  return normalized(std::move(result));
}

}  // namespace fathom::grammar
