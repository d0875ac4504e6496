#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json_schema.h"

namespace fathom::grammar {
namespace {

// Every text that fits satisfies the format; rare forms (leap seconds, quoted mail addresses) are left out.
std::vector<std::pair<std::string, std::string>> make_patterns() {
  const std::string date =
      "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-(?:"
      "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
      "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
  const std::string clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?";
  const std::string zone = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
  const std::string host = "(?:" + label + "\\.){1,6}[A-Za-z]{2,12}";
  const std::string mailbox = "[A-Za-z0-9_+-]{1,20}(?:\\.[A-Za-z0-9_+-]{1,20}){0,1}";
  const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return {{"date", date},
          {"time", clock + zone},
          {"date-time", date + "T" + clock + zone},
          {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
          {"email", mailbox + "@" + host},
          {"hostname", host},
          {"ipv4", octet + "(?:\\." + octet + "){3}"},
          {"uri", "https?://" + host + "(?:/[A-Za-z0-9._~-]{0,64}){0,16}"}};
}

}  // namespace

const IntegerFormat* find_integer_format(std::string_view format) {
  // Integers are written with at most 18 digits (json_values.h): 64 bits hold them all.
  constexpr int64_t kMost = 999'999'999'999'999'999;
  static constexpr std::array<IntegerFormat, 8> kFormats = {
      {{"int8", -128, 127},
       {"uint8", 0, 255},
       {"int16", -32'768, 32'767},
       {"uint16", 0, 65'535},
       {"int32", -2'147'483'648, 2'147'483'647},
       {"uint32", 0, 4'294'967'295},
       {"int64", -kMost, kMost},
       {"uint64", 0, kMost}}};
  const auto* const found = std::ranges::find(kFormats, format, &IntegerFormat::name);
  return found == kFormats.end() ? nullptr : found;
}

bool is_free_number_format(std::string_view format) {
  return format == "float" || format == "double" || format == "decimal";
}

std::string_view string_format_pattern(std::string_view format) {
  static const std::vector<std::pair<std::string, std::string>> patterns = make_patterns();
  for (const auto& [name, pattern] : patterns) {
    if (name == format) return pattern;
  }
  return {};
}

}  // namespace fathom::grammar
