#include "apps/tune/journal.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "apps/common/result_file.h"
#include "base/json.h"
#include "base/startup_error.h"
#include "tuned/file.h"

namespace fathom::apps {
namespace {

const std::vector<tuned::MatrixChoices>& list_of(const tuned::Table& table,
                                                 const tuned::MatrixChoices*) {
  return table.matrices;
}
const std::vector<tuned::ExpertChoices>& list_of(const tuned::Table& table,
                                                 const tuned::ExpertChoices*) {
  return table.experts;
}

// Throws where an entry is not right.
tuned::Table table_of_line(const std::string& path, const std::string& file_name,
                           const std::string& text) {
  tuned::Table table;
  throw_on_error(tuned::add_file({.name = file_name, .text = text, .from = path + ", " + file_name},
                                 "", table));
  return table;
}

}  // namespace

Journal::Journal(std::string path, bool resumes) : path_(std::move(path)) {
  if (resumes) {
    read();
  } else {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }
}

void Journal::read() {
  std::ifstream file(path_);
  for (std::string text; std::getline(file, text);) {
    if (file.eof()) break;  // a line without an end was cut off while it was written
    const json::Value value = value_or_throw(json::parse(text));
    const bool is_right = value.is_object() && value.contains("file") &&
                          value["file"].is_string() && value.contains("rows") &&
                          value["rows"].is_array() && value.contains("entries");
    if (!is_right)
      throw StartupError(path_ + ": a line is not of `fathom tune`: " + json::shown(value));
    Line line{.file_name = value["file"].get<std::string>(),
              .text = json::dump(value["entries"]),
              .rows = {}};
    for (const json::Value& rows : value["rows"])
      if (rows.is_number_integer()) line.rows.push_back(rows.get<int64_t>());
    table_of_line(path_, line.file_name, line.text);
    lines_.push_back(std::move(line));
  }
}

template <class Choices>
std::optional<Choices> Journal::find(const std::string& file_name,
                                     const std::vector<int64_t>& rows) const {
  for (const Line& line : lines_) {
    const auto has = [&](int64_t count) {
      return std::find(line.rows.begin(), line.rows.end(), count) != line.rows.end();
    };
    if (line.file_name == file_name && std::all_of(rows.begin(), rows.end(), has))
      return list_of(table_of_line(path_, line.file_name, line.text),
                     static_cast<const Choices*>(nullptr))
          .front();
  }
  return std::nullopt;
}
template std::optional<tuned::MatrixChoices> Journal::find(const std::string&,
                                                           const std::vector<int64_t>&) const;
template std::optional<tuned::ExpertChoices> Journal::find(const std::string&,
                                                           const std::vector<int64_t>&) const;

void Journal::append(Line line) {
  const json::Value value = {{"file", line.file_name},
                             {"rows", line.rows},
                             {"entries", value_or_throw(json::parse(line.text))}};
  append_result(path_, value);
  lines_.push_back(std::move(line));
}

void Journal::add(const tuned::MatrixChoices& choices, const std::vector<int64_t>& rows) {
  append({.file_name = tuned::file_name(choices), .text = tuned::file_text(choices), .rows = rows});
}
void Journal::add(const tuned::ExpertChoices& choices, const std::vector<int64_t>& rows) {
  append({.file_name = tuned::file_name(choices), .text = tuned::file_text(choices), .rows = rows});
}

}  // namespace fathom::apps
