#pragma once
// How a chat format writes tool calls, as data: the markers of a section and the steps of one call. The
// matcher follows the steps byte by byte; the output parser drives it.
//
//   V3, R1  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGS\n```<｜tool▁call▁end｜>…
//   V3.1    …<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGS<｜tool▁call▁end｜>…
//   Kimi    …<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>ARGS<|tool_call_end|>…
//
// A matcher owns the name that it read; arguments are its caller's. Not synchronised.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/chat_format.h"
#include "text/output/function_name.h"
#include "text/output/json_object_machine.h"

namespace fathom::text {

struct CallStep {
  enum class Kind : uint8_t {
    kLiteral,  // exactly these bytes
    kSpace,    // any JSON white space, perhaps none
    kName,     // the function: what function_name.h takes
    kCallId,   // Kimi: functions.NAME:INDEX
    kObject,   // the arguments, one JSON object
  };
  Kind kind;
  std::string_view literal = {};
};

struct ToolCallForm {
  std::string_view section_begin, section_end;
  std::string_view call_begin, call_end;
  std::string_view separator;       // between the name and the arguments
  std::span<const CallStep> steps;  // what follows call_begin, call_end included

  std::array<std::string_view, 5> markers() const {
    return {section_begin, section_end, call_begin, call_end, separator};
  }
};

// Null for formats without tool calls, and for DSML, whose arguments are no JSON object (dsml_reader.h).
const ToolCallForm* tool_call_form(ChatFormat format);

// Calls are tags of DSML (dsml_tag.h).
bool writes_dsml(ChatFormat format);

class ToolCallMatcher {
 public:
  // Where the byte that was pushed belongs.
  enum class Place {
    kBefore,        // in front of the arguments
    kArguments,     // in them
    kArgumentsEnd,  // it ends them: they are one JSON object
    kAfter,         // behind them, before the end of the call
    kMatched,       // the last byte of the call
    kFailed,        // nowhere: this is not the form of a call
  };
  explicit ToolCallMatcher(std::span<const CallStep> steps) : steps_(steps) {}
  // REQUIRES: no earlier push returned kMatched or kFailed.
  Place push(char c);

  // The name is whole.
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }  // empty except in Kimi's form
  // Inside a string of the arguments.
  bool in_string() const { return json_.in_string(); }

 private:
  enum class Taken { kYes, kNo, kFailed };  // kNo: the step is over, the byte is for the next one
  Taken take(const CallStep& step, char c);
  Taken take_name(const CallStep& step, char c);
  bool split_call_id();
  void next_step();

  std::span<const CallStep> steps_;
  size_t step_idx_ = 0;
  size_t literal_pos_ = 0;
  JsonObjectMachine json_;
  bool has_name_ = false, has_arguments_ = false, arguments_ended_ = false;
  std::string name_, id_;
};

}  // namespace fathom::text
