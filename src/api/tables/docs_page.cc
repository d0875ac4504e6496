#include "api/tables/docs_page.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "api/tables/docs_examples.h"
#include "api/tables/endpoint_fields.h"

namespace fathom::api {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Fathom: the API</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/base.css">
<link rel="stylesheet" href="/page/docs.css">
</head>
<body class="docs">
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

// "POST /v1/models/{id}" -> "post-v1-models-id".
std::string anchor_of(std::string_view text) {
  std::string anchor;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!anchor.empty() && anchor.back() != '-') {
      anchor += '-';
    }
  }
  while (anchor.ends_with('-')) anchor.pop_back();
  return anchor;
}

std::string name_of(const OpenApiOperation& operation) {
  return operation.method + " " + operation.path;
}

std::string link_to(std::string_view anchor, std::string_view text) {
  return "<a href=\"#" + std::string(anchor) + "\">" + escaped(text) + "</a>";
}

std::string fields_anchor(const FieldTable& table) { return "fields-" + anchor_of(table.name()); }

// The endpoints below their headings; an endpoint that is there under another name too stands once.
class Contents {
 public:
  struct Entry {
    const OpenApiOperation* operation;
    std::vector<std::string> other_names;
  };
  struct Group {
    std::string title;
    std::vector<Entry> entries;
  };

  explicit Contents(const std::vector<OpenApiOperation>& operations) {
    for (const OpenApiOperation& operation : operations) {
      if (target_of(operation, operations) == nullptr)
        group(operation.group).push_back({&operation, {}});
    }
    for (const OpenApiOperation& operation : operations) {
      if (const auto* target = target_of(operation, operations))
        add_name(*target, name_of(operation));
    }
  }

  const std::vector<Group>& groups() const { return groups_; }

 private:
  // Of which it is another name: another method of its path, or what its summary says ("as /v1/models").
  static const OpenApiOperation* target_of(const OpenApiOperation& operation,
                                           const std::vector<OpenApiOperation>& operations) {
    const std::string path =
        operation.summary.starts_with("as ") ? operation.summary.substr(3) : "";
    for (const OpenApiOperation& other : operations) {
      if (other.path == path && other.method == operation.method &&
          other.needs_key == operation.needs_key)
        return &other;
      const bool is_earlier = &other < &operation;
      if (is_earlier && other.path == operation.path && path.empty()) return &other;
    }
    return nullptr;
  }

  std::vector<Entry>& group(const std::string& title) {
    const auto found = std::ranges::find(groups_, title, &Group::title);
    if (found != groups_.end()) return found->entries;
    groups_.push_back({.title = title, .entries = {}});
    return groups_.back().entries;
  }

  void add_name(const OpenApiOperation& target, const std::string& name) {
    for (Group& group : groups_) {
      for (Entry& entry : group.entries) {
        if (entry.operation == &target) entry.other_names.push_back(name);
      }
    }
  }

  std::vector<Group> groups_;
};

void append_navigation(const Contents& contents, std::string& out) {
  out +=
      "<nav class=\"contents\" aria-label=\"Contents\">\n<p class=\"home\"><a "
      "href=\"/\">Fathom</a></p>\n<ul>\n";
  for (const Contents::Group& group : contents.groups()) {
    out += "<li>" + link_to(anchor_of(group.title), group.title) + "\n<ul>\n";
    for (const auto& [operation, other_names] : group.entries)
      out += "<li>" + link_to(anchor_of(name_of(*operation)), operation->path) + "</li>\n";
    out += "</ul></li>\n";
  }
  out += "</ul>\n</nav>\n";
}

std::string row_of(const FieldRule& rule) {
  std::string out = "<tr><td>" + code(rule.name);
  if (rule.is_required) out += " <span class=\"required\">required</span>";
  out += "</td><td>" + escaped(rule.about);
  if (rule.use != FieldUse::kWithoutEffect && !rule.json.empty()) out += "<br>" + code(rule.json);
  if (rule.inner != nullptr) out += "<br>" + link_to(fields_anchor(rule.inner()), "its fields");
  return out + "</td></tr>\n";
}

struct FieldRows {
  std::string html;
  int number = 0;
};

FieldRows rows_of(const FieldTable& table, FieldUse use, bool is_required) {
  FieldRows rows;
  for (const FieldRule& rule : table.rules()) {
    if (rule.use != use || rule.is_required != is_required) continue;
    rows.html += row_of(rule);
    ++rows.number;
  }
  return rows;
}

std::string table_of(const FieldRows& rows) {
  return "<table class=\"fields\">\n" + rows.html + "</table>\n";
}

void append_folded(std::string_view title, const FieldRows& rows, std::string& out) {
  if (rows.number == 0) return;
  out += "<details><summary>" + std::string(title) + " (" + std::to_string(rows.number) +
         ")</summary>\n" + table_of(rows) + "</details>\n";
}

// Those that a body needs; the others are many, and folded up.
void append_all_rules(const FieldTable& table, std::string& out) {
  const FieldRows required = rows_of(table, FieldUse::kHonoured, true);
  if (required.number > 0) out += table_of(required);
  append_folded(required.number > 0 ? "Other fields" : "Fields",
                rows_of(table, FieldUse::kHonoured, false), out);
  append_folded("Refused where they ask for something; the values shown do not",
                rows_of(table, FieldUse::kRefused, false), out);
  append_folded("Without effect on the answer", rows_of(table, FieldUse::kWithoutEffect, false),
                out);
}

// The objects within, each once on the page and folded up.
void append_inner(const FieldTable& table, std::vector<std::string_view>& done, std::string& out) {
  for (const FieldRule& rule : table.rules()) {
    if (rule.inner == nullptr) continue;
    const FieldTable& inner = rule.inner();
    if (std::ranges::find(done, inner.name()) != done.end()) continue;
    done.push_back(inner.name());
    // What a link leads to lies within: then the browser unfolds it.
    out += "<details><summary>Fields of " + code(inner.name()) + "</summary>\n<div id=\"" +
           fields_anchor(inner) + "\">\n";
    append_all_rules(inner, out);
    append_inner(inner, done, out);
    out += "</div></details>\n";
  }
}

void append_entry(const Contents::Entry& entry, std::string_view model,
                  std::vector<std::string_view>& done, std::string& out) {
  const OpenApiOperation& operation = *entry.operation;
  out += "<article id=\"" + anchor_of(name_of(operation)) + "\">\n<h3>" + code(name_of(operation)) +
         "</h3>\n<p>" + escaped(operation.summary);
  if (!operation.needs_key) out += " <span class=\"tag\">no key needed</span>";
  out += "</p>\n";
  if (!entry.other_names.empty()) {
    out += "<p class=\"others\">Also";
    for (const std::string& name : entry.other_names) out += " " + code(name);
    out += "</p>\n";
  }
  const std::string command = example_command(operation, model);
  if (!command.empty())
    out += "<pre class=\"example\" tabindex=\"0\">" + escaped(command) + "</pre>\n";
  for (const EndpointFields& endpoint : endpoints_with_fields()) {
    if (operation.method != "POST" || endpoint.path != operation.path) continue;
    append_all_rules(endpoint.fields(), out);
    append_inner(endpoint.fields(), done, out);
  }
  out += "</article>\n";
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
  const Contents contents(facts.operations);
  std::string out(kHead);
  append_navigation(contents, out);
  out += "<main>\n<h1>The API</h1>\n<p>Version " + escaped(facts.version) +
         R"(. The same for programs: <a href="/openapi.json">/openapi.json</a>. )" +
         "<code>null</code> is the same as a missing field. " + unlisted_fields(facts) + "</p>\n" +
         "<p>The commands below ask the server whose address is in <code>FATHOM</code>. Where it "
         "has keys, each needs "
         "<code>-H \"Authorization: Bearer $KEY\"</code> too.</p>\n"
         "<pre class=\"setup\" tabindex=\"0\">FATHOM=127.0.0.1:30000</pre>\n";
  std::vector<std::string_view> done;
  for (const Contents::Group& group : contents.groups()) {
    out +=
        "<section id=\"" + anchor_of(group.title) + "\">\n<h2>" + escaped(group.title) + "</h2>\n";
    for (const Contents::Entry& entry : group.entries) append_entry(entry, facts.model, done, out);
    out += "</section>\n";
  }
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace fathom::api
