#pragma once
// OutputItem: an item of the output of /v1/responses while it is written: reasoning, a message, or a call of a function
// or of a custom tool.
//
//   OutputItem item{.kind = text::OutputEvent::Kind::kContent, .id = "msg_1"};
//   item.text += piece;
//   item.json("completed", /*is_begin=*/false);    // {"id":"msg_1","type":"message",...}
//
// Plain data; internal to answer/.

#include <string>
#include <string_view>

#include "answer/custom_input.h"
#include "api/tool_kinds.h"
#include "text/output_parser.h"

namespace fathom::answer {

// A JSON string.
std::string json_text_of(std::string_view text);

struct OutputItem {
  using Kind = text::OutputEvent::Kind;

  Kind kind = Kind::kContent;  // kToolCallBegin for a call
  std::string id;
  std::string call_id{}, shown_name{};  // of a call; its name as the model writes it
  api::ToolKind tool{};                 // of a call
  std::string text{};                   // or arguments
  std::string logprobs{};               // of the text's tokens, as JSON without brackets
  bool is_encrypted = false;            // reasoning that carries its text for clients that keep it
  CustomInput reader{};                 // of a custom tool's input
  std::string input{};                  // what it has read

  bool is_call() const { return kind == Kind::kToolCallBegin; }
  bool is_custom() const { return is_call() && tool.is_custom; }
  bool is_reasoning() const { return kind == Kind::kReasoning; }
  const std::string& shown() const { return is_custom() ? input : text; }

  // The part of a message or of reasoning that holds this much of the text.
  std::string part(std::string_view shown_text) const;
  // The item with its text, or, with is_begin, as it is announced: empty.
  std::string json(std::string_view status, bool is_begin) const;

 private:
  void append_call(std::string& out, bool is_begin) const;
};

}  // namespace fathom::answer
