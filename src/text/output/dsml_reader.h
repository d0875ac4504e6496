#pragma once
// The calls within an output in DSML (dsml_tag.h), whose arguments are written a parameter at a time: composed here to
// the JSON object that clients know, as they come. OutputParser tells reasoning from content and hands both over.
//
//   DsmlReader reader(/*makes_calls=*/true);
//   reader.push(OutputEvent::Kind::kContent, text, events);
//   reader.finish(events);
//
// - string="true": the text as it is, to the last space. Else a JSON value, and text that is none is a string after
//   all: so values that are no strings come out when they end, or once kMaxHeldBytes are held.
// - A call is complete with the end of its invoke, where its parameters have each a name of its own and nothing stood
//   between them. Another tag within a string ends it, since that has lost its own end; within the strings of a JSON
//   value tags are text.
// - Where no parameter came, an object is taken for the arguments.
// - Tags are never text, nor is a mark that makes none; line breaks before a section and white space around calls are
//   theirs. What is no call comes out as the text it is.
// - A section or a call within the reasoning ends it.
//
// Owns its buffers; a copy goes on by itself. Not synchronised.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/dsml_tag.h"
#include "text/output/json_object_machine.h"
#include "text/output/output_event.h"

namespace fathom::text {

class DsmlReader {
 public:
  static constexpr size_t kMaxHeldBytes = 4096;
  // Line breaks before a section that belong to it.
  static constexpr size_t kMaxBreaksBefore = 2;

  using Kind = OutputEvent::Kind;
  using Events = std::vector<OutputEvent>;

  // false: tags are left out, and there are no calls.
  explicit DsmlReader(bool makes_calls) : makes_calls_(makes_calls) {}

  // Text that is reasoning or content; behind a call it is content.
  void push(Kind kind, std::string_view text, Events& out);
  // The reasoning ends here: what is held of it comes out.
  void end_reasoning(Events& out);
  // The end of the output.
  void finish(Events& out);

  // A section or a call has ended the reasoning.
  bool has_ended_reasoning() const { return has_ended_reasoning_; }
  bool in_call() const { return place_ != Place::kText; }

 private:
  enum class Place : uint8_t {
    kText,
    kInvoke,  // of a call, outside of its parameters
    kString,  // a parameter that is a string
    kValue,   // one that is not, unless it proves to be
    kObject,  // all arguments as one object
    kBroken,  // a call that is none any more: all of it up to its end stands as it is
  };

  void step(char c, Events& out);
  // What is no tag: a byte, or several that were held.
  void take(std::string_view text, Events& out);
  void take_text(std::string_view text, Events& out);
  void take_value(char c, Events& out);
  void take_broken_tag(Events& out);
  void take_rest(Events& out);
  void take_tag(const DsmlTag& tag, Events& out);
  void take_tag_in_text(const DsmlTag& tag, Events& out);
  void take_tag_in_value(const DsmlTag& tag, Events& out);
  void take_tag_in_call(const DsmlTag& tag, Events& out);

  void begin_call(const DsmlTag& tag, Events& out);
  void begin_parameter(const DsmlTag& tag, Events& out);
  void end_value(Events& out);
  void value_is_string(Events& out);
  void close_object(Events& out);
  void end_call(Events& out);

  void emit_space(Events& out);
  void emit(std::string_view text, Events& out);
  void append(std::string_view text, Events& out);
  void emit_arguments(std::string_view json, Events& out);
  void emit_quoted(std::string_view text, Events& out);

  bool makes_calls_;
  Kind kind_ = Kind::kContent;  // of the text
  Place place_ = Place::kText;
  bool has_ended_reasoning_ = false;
  bool in_gap_ = false;  // white space here is a section's
  std::string space_;    // white space that a tag may take with it
  DsmlScanner scanner_;
  size_t num_mark_ = 0;    // bytes of a mark that the text shown ends with
  std::string held_mark_;  // the last of them, while they may complete it

  int num_calls_ = 0;
  std::set<std::string> names_;  // of the call's parameters
  bool is_sound_ = true;         // the call may be complete yet
  bool has_arguments_ = false;   // some of them came out
  JsonObjectMachine::State state_ = JsonObjectMachine::State::kMore;
  JsonObjectMachine arguments_;  // all that came out, in state_
  JsonObjectMachine value_;      // of kValue, as the member of an object
  std::string held_value_;       // of kValue, until it comes out
  bool streams_value_ = false;   // it did already
};

}  // namespace fathom::text
