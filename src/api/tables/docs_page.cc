#include "api/tables/docs_page.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "api/tables/endpoint_fields.h"

namespace fathom::api {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Fathom: the API</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 0 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
td:first-child { white-space: nowrap; }
code { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; margin: .5rem 0; }
</style>
</head>
<body>
<h1>Fathom: the API</h1>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string code(std::string_view text) { return "<code>" + escaped(text) + "</code>"; }

std::string row(const std::vector<std::string>& cells) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += "<td>" + cell + "</td>";
  return out + "</tr>\n";
}

void append_operations(const OpenApiFacts& facts, std::string& out) {
  out += "<h2>Endpoints</h2>\n<table>\n";
  for (const OpenApiOperation& operation : facts.operations) {
    out += row({code(operation.method + " " + operation.path), escaped(operation.summary)});
  }
  out += "</table>\n";
}

// The rules of one use, folded up where they are not what most people look for.
void append_rules(const FieldTable& table, FieldUse use, std::string_view title, std::string& out) {
  std::string rows;
  int num_rules = 0;
  for (const FieldRule& rule : table.rules()) {
    if (rule.use != use) continue;
    ++num_rules;
    std::string name = code(rule.name) + (rule.is_required ? " (required)" : "");
    rows +=
        use == FieldUse::kWithoutEffect
            ? row({std::move(name), escaped(rule.about)})
            : row({std::move(name), rule.json.empty() ? "" : code(rule.json), escaped(rule.about)});
  }
  if (num_rules == 0) return;
  if (use == FieldUse::kHonoured) {
    out += "<table>\n" + rows + "</table>\n";
    return;
  }
  out += "<details><summary>" + std::string(title) + " (" + std::to_string(num_rules) +
         ")</summary>\n<table>\n" + rows + "</table></details>\n";
}

void append_table(const FieldTable& table, std::string_view heading,
                  std::vector<std::string_view>& done, std::string& out) {
  if (std::ranges::find(done, table.name()) != done.end()) return;
  done.push_back(table.name());
  out += "<h2>" + code(heading) + "</h2>\n";
  append_rules(table, FieldUse::kHonoured, "", out);
  append_rules(table, FieldUse::kRefused,
               "refused where they ask for something; the values shown do not", out);
  append_rules(table, FieldUse::kWithoutEffect, "without effect on the answer", out);
  for (const FieldRule& rule : table.rules()) {
    if (rule.inner != nullptr) append_table(rule.inner(), rule.inner().name(), done, out);
  }
}

// What becomes of a field that no table has.
std::string unlisted_fields(const OpenApiFacts& facts) {
  if (facts.unknown_fields == UnknownFields::kRefuse)
    return "A field that is not listed here is refused.";
  if (facts.unknown_fields == UnknownFields::kIgnore)
    return "A field that is not listed here is skipped.";
  std::string skipping;
  for (const EndpointFields& endpoint : endpoints_with_fields()) {
    if (endpoint.unknown == UnknownFields::kIgnore)
      skipping += (skipping.empty() ? "" : " and ") + code(endpoint.path);
  }
  return "A field that is not listed here is refused, in " + skipping + " skipped.";
}

}  // namespace

std::string docs_page(const OpenApiFacts& facts) {
  std::string out(kHead);
  out += "<p>Version " + escaped(facts.version) +
         R"(. The same for programs: <a href="/openapi.json">)" +
         "/openapi.json</a>. <code>null</code> is the same as a missing field. ";
  out += unlisted_fields(facts) + "</p>\n";
  append_operations(facts, out);
  std::vector<std::string_view> done;
  for (const EndpointFields& endpoint : endpoints_with_fields()) {
    append_table(endpoint.fields(), "POST " + std::string(endpoint.path), done, out);
  }
  return out + "</body>\n</html>\n";
}

}  // namespace fathom::api
