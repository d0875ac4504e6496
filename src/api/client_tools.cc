#include "api/client_tools.h"

#include "base/check.h"

namespace fathom::api {
namespace {

json::Value schema_of(std::string_view text) {
  Result<json::Value> schema = json::parse(text);
  FATHOM_CHECK(schema, "a schema of our own is no JSON");
  return std::move(*schema);
}

ClientTool bash() {
  return {.description =
              "Run a command in a bash shell. The shell keeps its state between calls; with "
              "restart it begins anew.",
          .input_schema = schema_of(R"({"type":"object","properties":{
"command":{"type":"string","description":"The command to run. Required unless restart is true."},
"restart":{"type":"boolean","description":"True: start the shell anew."}}})")};
}

// Newer versions insert insert_text and undo nothing.
ClientTool text_editor(bool undoes, bool has_insert_text) {
  const std::string inserted = has_insert_text ? "insert_text" : "new_str";
  ClientTool tool{
      .description =
          "View, create and edit text files. view shows a file with numbered lines, or what is in "
          "a folder; create writes file_text to a file; str_replace replaces old_str, which must "
          "occur exactly once, by new_str; insert puts " +
          inserted + " behind line insert_line" +
          (undoes ? "; undo_edit takes back the last change of a file." : "."),
      .input_schema = schema_of(R"({"type":"object","properties":{
"command":{"type":"string","enum":["view","create","str_replace","insert"]},
"path":{"type":"string","description":"Of the file or folder."},
"view_range":{"type":"array","items":{"type":"integer"},"description":"For view: first and last line, counted from 1; -1 is the end of the file."},
"file_text":{"type":"string","description":"For create: the whole text of the file."},
"old_str":{"type":"string","description":"For str_replace: the text to replace."},
"new_str":{"type":"string","description":"The text to put in."},
"insert_line":{"type":"integer","description":"For insert: the line behind which to insert; 0 is the beginning."}},
"required":["command","path"]})")};
  json::Value& properties = tool.input_schema["properties"];
  if (undoes) properties["command"]["enum"].push_back("undo_edit");
  if (has_insert_text) {
    properties["insert_text"] = {{"type", "string"}, {"description", "For insert: the text."}};
  }
  return tool;
}

ClientTool memory() {
  return {
      .description =
          "Notes that outlive the conversation, as files below /memories. view shows a file or "
          "what is in a folder; create writes file_text; str_replace replaces old_str by new_str; "
          "insert puts insert_text at line insert_line; delete removes path; rename moves "
          "old_path to new_path.",
      .input_schema = schema_of(R"({"type":"object","properties":{
"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},
"path":{"type":"string","description":"Of the file or folder; for every command but rename."},
"view_range":{"type":"array","items":{"type":"integer"},"description":"For view: first and last line."},
"file_text":{"type":"string","description":"For create: the whole text of the file."},
"old_str":{"type":"string","description":"For str_replace: the text to replace."},
"new_str":{"type":"string","description":"For str_replace: the text to put in."},
"insert_line":{"type":"integer","description":"For insert: the line."},
"insert_text":{"type":"string","description":"For insert: the text."},
"old_path":{"type":"string","description":"For rename: the path now."},
"new_path":{"type":"string","description":"For rename: the path then."}},
"required":["command"]})")};
}

}  // namespace

std::optional<ClientTool> client_tool(std::string_view type) {
  if (type.starts_with("bash_")) return bash();
  if (type.starts_with("memory_")) return memory();
  if (!type.starts_with("text_editor_")) return std::nullopt;
  // By their dates.
  const std::string_view version = type.substr(std::string_view("text_editor_").size());
  return text_editor(/*undoes=*/version < "20250429", /*has_insert_text=*/version >= "20250728");
}

}  // namespace fathom::api
