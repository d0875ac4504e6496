#pragma once
// Model output -> reasoning, content and tool calls, byte by byte. The events do not depend on how the
// bytes were cut into pushes, no byte is read twice, and what is held back is only what may still become a
// marker, the head of a call and white space between calls (at most 4 KiB).
//
//   OutputParser parser(format, {.starts_in_reasoning = opens_reasoning(prompt), .tools = has_tools});
//   parser.push(detokenizer.take(), events);   // special tokens of output_markers() kept as text
//   parser.finish(events);
//
// A call begins with the first byte of its arguments, which are reported as they come. It ends complete with
// the last byte of its JSON object; a call that is cut off behind its name or whose arguments break the rules
// of JSON ends as not complete, with what the model wrote of it. Markers of tool calls are never text: what a
// section holds besides calls comes out as content without them, and reasoning loses them too. Calls in DSML are read
// by DsmlReader, which has the rules for them.
//
// Owns its buffers. Not synchronised.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format.h"
#include "text/marker_scanner.h"
#include "text/output/dsml_reader.h"
#include "text/output/output_event.h"
#include "text/tool_call_form.h"

namespace fathom::text {

class OutputParser {
 public:
  static constexpr size_t kMaxHeldBytes = 4096;
  // White space before <think> that is still taken for its surroundings, and line breaks that </think> takes with it.
  static constexpr size_t kMaxLeadingBytes = 64;
  static constexpr int kMaxBreaksBehindReasoning = 2;

  struct Options {
    bool reasoning = true;             // separate <think> … </think> from the content
    bool starts_in_reasoning = false;  // the prompt ended with an open <think>
    bool tools = true;                 // look for markers of tool calls; off, they are text
    bool calls = true;                 // off, only the markers go: what would be a call is content
  };

  OutputParser(ChatFormat format, Options options);

  // Appends to `out`; text and arguments continue the last event there where the kind is the same.
  void push(std::string_view bytes, std::vector<OutputEvent>& out);
  // The end of the output: what was held back comes out. REQUIRES: called once, nothing pushed after.
  void finish(std::vector<OutputEvent>& out);

 private:
  enum class State {
    kStart,        // white space, then perhaps <think>
    kThinkOpened,  // one newline after <think> belongs to it
    kReasoning,
    kThinkClosed,  // up to two newlines after </think> belong to it
    kContent,      // text, also between the calls of a section
    kGap,          // white space that the markup of a section may have
    kCallHead,     // from the marker of a call to its arguments
    kArguments,
    kBrokenArguments,  // no JSON any more: up to the next marker
    kCallTail,         // from the arguments to the end of the call
  };
  using Kind = OutputEvent::Kind;
  using Events = std::vector<OutputEvent>;

  void step(char c, Events& out);
  void step_start(char c, Events& out);
  // Bytes that belong to no marker.
  void take_text(std::string_view text, Events& out);
  void take_reasoning(std::string_view text, Events& out);
  void take_gap(char c, Events& out);
  void take_call_byte(char c, Events& out);
  // A whole marker; of tool calls but for </think>.
  void take_marker(std::string_view marker, Events& out);
  bool is_part_of_call(std::string_view marker, Events& out);
  void enter_after(std::string_view marker);
  void take_late_think_end(Events& out);
  void close_reasoning(Events& out);
  bool drops_cut_marker() const;

  void begin_call(Events& out);
  void end_head(Events& out);
  void end_call(bool is_complete, Events& out);
  // What was held is text after all.
  void emit_held(Events& out);
  void emit(Kind kind, std::string_view text, Events& out);
  void emit_guarded(Kind kind, std::string_view text, Events& out);
  void append(Kind kind, std::string_view text, Events& out) const;

  bool reads_markers() const { return state_ >= State::kContent || state_ == State::kReasoning; }
  MarkerScanner& scanner() { return state_ == State::kReasoning ? reasoning_markers_ : markers_; }

  Options options_;
  const ToolCallForm* form_;  // null: no tool calls, or DSML
  std::optional<DsmlReader> dsml_;
  bool awaits_think_end_ = false;  // a call has ended the reasoning, without its marker
  State state_;
  MarkerScanner think_begin_;        // of kStart
  MarkerScanner reasoning_markers_;  // </think> and those of calls
  MarkerScanner markers_;            // those of calls
  MarkerScanner guard_;              // those of calls, over the text that came out
  ToolCallMatcher matcher_;
  std::string pending_;   // the beginning of a marker, perhaps
  std::string held_;      // bytes before pending_ whose meaning is not settled
  int num_newlines_ = 0;  // after </think>
  int num_calls_ = 0;
  bool in_section_ = false;
  bool is_finished_ = false;
};

}  // namespace fathom::text
