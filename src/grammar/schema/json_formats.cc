#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema/json_values.h"
#include "grammar/schema/schema_reader.h"
#include "grammar/schema/schema_texts.h"

namespace fathom::grammar {
namespace {

using Patterns = std::vector<std::pair<std::string, std::string>>;

std::string either(const std::string& a, const std::string& b) { return "(?:" + a + "|" + b + ")"; }

// RFC 3339; leap seconds are left out.
void add_times(Patterns& patterns) {
  const std::string date =
      "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-(?:"
      "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
      "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
  const std::string clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?";
  const std::string zone = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  patterns.emplace_back("date", date);
  patterns.emplace_back("time", clock + zone);
  patterns.emplace_back("date-time", date + "[Tt]" + clock + zone);
  const std::string number = "[0-9]{1,9}";
  const auto nested = [&](const std::string& units) {
    // Larger units first, none in between left out.
    std::string all;
    for (size_t first = 0; first < units.size(); ++first) {
      std::string one = number + units[first];
      for (size_t i = units.size(); i-- > first + 1;) {
        one = i + 1 == units.size() ? "(?:" + number + units[i] + ")?"
                                    : "(?:" + number + units[i] + one + ")?";
      }
      std::string tail;
      for (size_t i = units.size(); i-- > first + 1;)
        tail = "(?:" + number + units[i] + tail + ")?";
      all += (first > 0 ? "|" : "") + number + units[first] + tail;
    }
    return "(?:" + all + ")";
  };
  const std::string time = "T" + nested("HMS");
  patterns.emplace_back("duration",
                        "P(?:" + nested("YMD") + "(?:" + time + ")?|" + time + "|" + number + "W)");
}

// RFC 1123 names and RFC 4291 addresses.
void add_hosts(Patterns& patterns) {
  const auto label = [](const std::string& longest) {
    return "[A-Za-z0-9](?:-?[A-Za-z0-9]){0," + longest + "}";
  };
  const std::string host = either("(?:" + label("31") + "\\.){0,2}" + label("31"),
                                  "(?:" + label("14") + "\\.){3,6}" + label("14"));
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string ipv4 = octet + "(?:\\." + octet + "){3}";
  const std::string group = "[0-9A-Fa-f]{1,4}", last = either(group + ":" + group, ipv4);
  std::string ipv6 = "(?:" + group + ":){6}" + last;
  for (int before = 0; before <= 7; ++before) {
    // So many groups at most stand before the two colons.
    const std::string head =
        before == 0 ? ""
                    : "(?:(?:" + group + ":){0," + std::to_string(before - 1) + "}" + group + ")?";
    const int behind = 7 - before;  // groups behind them
    std::string tail;
    if (behind >= 2) {
      tail = "(?:" + group + ":){" + std::to_string(behind - 2) + "}" + last;
    } else if (behind == 1) {
      tail = group;
    }
    ipv6 += "|" + head + "::" + tail;
  }
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
  const std::string email = atom + "(?:\\." + atom + "){0,2}@" + host;
  patterns.insert(patterns.end(), {{"hostname", host},
                                   {"host-name", host},
                                   {"idn-hostname", host},
                                   {"ipv4", ipv4},
                                   {"ip-address", ipv4},
                                   {"ipv6", "(?:" + ipv6 + ")"},
                                   {"email", email},
                                   {"idn-email", email}});
}

// RFC 3986, 6901 and 4122.
void add_references(Patterns& patterns) {
  const std::string letters = "-A-Za-z0-9._~!$&'()*+,;=", encoded = "%[0-9A-Fa-f]{2}";
  const auto text = [&](const std::string& more) {
    return "(?:[" + letters + more + "]|" + encoded + ")";
  };
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string host = either("\\[(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}\\]", text("") + "*");
  const std::string authority = "//(?:" + text(":") + "*@)?" + host + "(?::[0-9]{0,5})?";
  const std::string segments = "(?:/" + text(":@") + "*)*";
  const std::string absolute = "/(?:" + text(":@") + "+" + segments + ")?",
                    rootless = text(":@") + "+" + segments;
  const std::string no_scheme = text("@") + "+" + segments;
  const std::string rest = "(?:\\?" + text(":@/?") + "*)?(?:#" + text(":@/?") + "*)?";
  const std::string uri = "[A-Za-z][A-Za-z0-9+.-]*:(?:" + authority + segments + "|" + absolute +
                          "|" + rootless + ")" + rest;
  const std::string relative =
      "(?:" + authority + segments + "|" + absolute + "|" + no_scheme + ")?" + rest;
  const std::string pointer = "(?:/(?:[^~/]|~[01])*)*";
  patterns.insert(
      patterns.end(),
      {{"uri", uri},
       {"iri", uri},
       {"uri-reference", either(uri, relative)},
       {"iri-reference", either(uri, relative)},
       {"uri-template", either(uri, relative)},
       {"json-pointer", pointer},
       {"relative-json-pointer", "(?:0|[1-9][0-9]{0,9})(?:#|" + pointer + ")"},
       {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"}});
}

// Patterns that ECMAScript, Python and Rust read alike: characters, escapes, classes, and groups two levels deep.
void add_patterns(Patterns& patterns) {
  const std::string escape = R"(\\[dDwWsS^$.*+?()\[\]{}|\\])";
  const std::string classed = R"(\[\^?(?:a-z|A-Z|0-9|[A-Za-z0-9 _,;:@%/]|)" + escape + R"()+\])";
  const std::string one = R"((?:[A-Za-z0-9 _,;:@%/=<>'"!#&~`-]|\.|)" + escape + "|" + classed + ")";
  const std::string count = R"((?:[*+?]|\{[0-9]{1,2},?\})?)";
  std::string text = "(?:" + one + count + ")*";
  for (int depth = 0; depth < 2; ++depth) {
    const std::string group = R"(\((?:\?:)?)" + text + R"((?:\|)" + text + R"()*\))";
    text = "(?:" + either(one, group) + count + ")*";
  }
  patterns.emplace_back("regex", R"(\^?)" + text + R"(\$?)");
}

// Every text that fits satisfies the format; rare forms (quoted mail addresses, international names) are left out.
Patterns make_patterns() {
  Patterns patterns;
  add_times(patterns);
  add_hosts(patterns);
  add_references(patterns);
  add_patterns(patterns);
  return patterns;
}

}  // namespace

const IntegerFormat* find_integer_format(std::string_view format) {
  static constexpr std::array<IntegerFormat, 8> kFormats = {
      {{"int8", -128, 127},
       {"uint8", 0, 255},
       {"int16", -32'768, 32'767},
       {"uint16", 0, 65'535},
       {"int32", -2'147'483'648, 2'147'483'647},
       {"uint32", 0, 4'294'967'295},
       {"int64", kLeastInteger, -(kLeastInteger + 1)},
       {"uint64", 0, kMostInteger}}};
  const auto* const found = std::ranges::find(kFormats, format, &IntegerFormat::name);
  return found == kFormats.end() ? nullptr : found;
}

bool is_free_number_format(std::string_view format) {
  return format == "float" || format == "double" || format == "decimal";
}

std::string_view string_format_pattern(std::string_view format) {
  static const Patterns patterns = make_patterns();
  for (const auto& [name, pattern] : patterns) {
    if (name == format) return pattern;
  }
  return {};
}

}  // namespace fathom::grammar
