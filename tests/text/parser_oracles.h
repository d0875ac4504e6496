#pragma once
// What holds for every output and every way of cutting it, for tests and the fuzzer alike.
//
//   check_output(ChatFormat::kV31, {.tools = true}, bytes, cuts);   // aborts with a line on a violation

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/chat_markup.h"
#include "text/output_parser.h"

namespace fathom::text::tests {

using Events = std::vector<OutputEvent>;

// `cuts` are increasing positions in `bytes`.
inline Events parse_in_pieces(ChatFormat format, OutputParser::Options options,
                              std::string_view bytes, const std::vector<size_t>& cuts = {}) {
  OutputParser parser(format, options);
  Events events;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parser.push(bytes.substr(begin, cut - begin), events);
    begin = cut;
  }
  parser.push(bytes.substr(begin), events);
  parser.finish(events);
  return events;
}

// A call that is not complete ends with "cut".
inline std::string describe(const Events& events) {
  static constexpr const char* kNames[] = {"reasoning", "content", "begin", "arguments", "end"};
  std::string text;
  for (const OutputEvent& event : events) {
    const bool is_cut = event.kind == OutputEvent::Kind::kToolCallEnd && !event.is_complete;
    text += is_cut ? "cut" : kNames[static_cast<int>(event.kind)];
    text += "[" + event.text + "]";
    if (event.index >= 0) text += "#" + std::to_string(event.index);
    if (!event.id.empty()) text += "(" + event.id + ")";
    text += "\n";
  }
  return text;
}

// Positions in the output that the events read so far may have come to.
using Places = std::set<size_t>;

inline void skip_words(std::span<const std::string_view> words, std::string_view bytes,
                       Places& places) {
  // Insertions lie ahead, so the loop meets them.
  for (const size_t place : places) {
    for (const std::string_view word : words) {
      if (bytes.substr(place).starts_with(word)) places.insert(place + word.size());
    }
  }
}

// Adds what is reached over what may vanish between events: markup, the words around a call, white space.
inline void skip_markup(ChatFormat format, std::string_view bytes, Places& places) {
  std::vector<std::string_view> words = output_markers(format);
  for (const std::string_view word :
       {"function", "```json", "```jso", "```js", "```j", "```", "functions.", ":",
        " ",        "\n",      "\t",     "\r",    "0",    "1",   "2",          "3",
        "4",        "5",       "6",      "7",     "8",    "9",   "`"}) {
    words.push_back(word);
  }
  skip_words(words, bytes, places);
}

// Adds what is reached over markers of calls, with the white space around them, which vanish within a text too.
inline void skip_markers(const ToolCallForm& form, std::string_view bytes, Places& places) {
  const auto markers = form.markers();
  for (const size_t place : Places(places)) {
    size_t at = place;
    while (at < bytes.size() && is_json_space(bytes[at])) ++at;
    Places over = {at};
    skip_words(markers, bytes, over);
    if (over.size() == 1) continue;
    std::vector<std::string_view> words(markers.begin(), markers.end());
    words.insert(words.end(), {" ", "\n", "\t", "\r"});
    skip_words(words, bytes, over);
    places.insert(over.begin(), over.end());
  }
}

// Adds what is reached over bytes that are left out because they would complete a marker in the text shown: its
// halves stood around a marker that was left out.
inline void skip_last_bytes(const ToolCallForm& form, std::string_view shown,
                            std::string_view bytes, Places& places) {
  for (const std::string_view marker : form.markers()) {
    if (shown.ends_with(marker.substr(0, marker.size() - 1))) {
      skip_words(std::array{marker.substr(marker.size() - 1)}, bytes, places);
    }
  }
}

// Whether the output may end with these bytes unseen: a marker or a fence that was cut off, perhaps behind the
// name of a call that was.
inline bool is_cut_end(const ToolCallForm& form, std::string_view before, std::string_view rest) {
  const bool has_name = before.ends_with(form.call_begin) || before.ends_with(form.separator);
  if (const size_t marker = rest.rfind('<'); marker != rest.npos) {
    const std::string_view tail = rest.substr(marker);
    for (const std::string_view whole : form.markers()) {
      if (whole.starts_with(tail)) rest = rest.substr(0, marker);
    }
  }
  if (std::string_view("```json").starts_with(rest)) return true;
  return has_name && rest.find_first_of("<{}\"") == rest.npos;
}

// What is shown as text stands in the output, in order. Arguments in DSML are composed.
inline bool shows_in_order(std::string_view bytes, const Events& events) {
  for (const OutputEvent& event : events) {
    if (event.kind != OutputEvent::Kind::kReasoning && event.kind != OutputEvent::Kind::kContent)
      continue;
    for (const char c : event.text) {
      const size_t at = bytes.find(c);
      if (at == bytes.npos) return false;
      bytes.remove_prefix(at + 1);
    }
  }
  return true;
}

// Every byte is in an event, in order, or is markup.
inline bool accounts_for(ChatFormat format, std::string_view bytes, const Events& events) {
  if (writes_dsml(format)) return shows_in_order(bytes, events);
  const ToolCallForm* form = tool_call_form(format);
  Places places = {0};
  // By kind: a client joins the pieces of the content over what comes between them.
  std::map<OutputEvent::Kind, std::string> shown;
  const auto skip_hidden = [&] {
    if (form == nullptr) return;
    // A marker may follow a byte that was left out, and then another such byte.
    for (size_t num_places = 0; num_places != places.size();) {
      num_places = places.size();
      skip_markers(*form, bytes, places);
      for (const auto& [kind, text] : shown) skip_last_bytes(*form, text, bytes, places);
    }
  };
  for (const OutputEvent& event : events) {
    skip_hidden();
    skip_markup(format, bytes, places);
    for (const char c : event.text) {
      skip_hidden();
      Places after;
      for (const size_t place : places) {
        if (place < bytes.size() && bytes[place] == c) after.insert(place + 1);
      }
      places = std::move(after);
      shown[event.kind] += c;
    }
  }
  skip_hidden();
  skip_markup(format, bytes, places);
  for (const size_t place : places) {
    if (place == bytes.size()) return true;
    if (form && is_cut_end(*form, bytes.substr(0, place), bytes.substr(place))) return true;
  }
  return false;
}

// No marker of a call in what a client reads as text, and none that was cut off at its end.
inline void check_no_markers(ChatFormat format, const Events& events) {
  const ToolCallForm* form = tool_call_form(format);
  std::vector<std::string_view> markers;
  if (form != nullptr) std::ranges::copy(form->markers(), std::back_inserter(markers));
  if (writes_dsml(format)) markers.push_back(markup::kDsml);
  for (const auto kind : {OutputEvent::Kind::kReasoning, OutputEvent::Kind::kContent}) {
    std::string text;
    for (const OutputEvent& event : events) text += event.kind == kind ? event.text : "";
    for (const std::string_view marker : markers) {
      FATHOM_CHECK(text.find(marker) == text.npos, marker << " in " << text);
    }
  }
}

// Rules on one list of events.
inline void check_events(ChatFormat format, const Events& events, OutputParser::Options options) {
  using Kind = OutputEvent::Kind;
  int num_calls = 0;
  bool in_call = false;
  std::string arguments;
  for (size_t i = 0; i < events.size(); ++i) {
    const OutputEvent& event = events[i];
    const bool is_text = event.kind == Kind::kReasoning || event.kind == Kind::kContent;
    FATHOM_CHECK(!is_text || !event.text.empty(), "empty text event " << i);
    FATHOM_CHECK(!is_text || i == 0 || events[i - 1].kind != event.kind,
                 "text not joined at " << i);
    FATHOM_CHECK(is_text || (options.tools && options.calls), "a call though calls are off");
    FATHOM_CHECK(event.kind != Kind::kReasoning || options.reasoning, "reasoning though it is off");
    if (is_text) {
      FATHOM_CHECK(!in_call, "text in a call at " << i);
    } else if (event.kind == Kind::kToolCallBegin) {
      FATHOM_CHECK(!in_call && event.index == num_calls && !event.text.empty(), "begin at " << i);
      in_call = true;
      arguments.clear();
    } else {
      FATHOM_CHECK(in_call && event.index == num_calls, "outside of its call at " << i);
      arguments += event.text;
      if (event.kind == Kind::kToolCallArguments) continue;
      // In DSML names may be given twice, which JSON alone takes.
      const bool may_be_incomplete = writes_dsml(format) && !event.is_complete;
      FATHOM_CHECK(may_be_incomplete || event.is_complete == is_json_object(arguments),
                   "arguments: " << arguments);
      in_call = false;
      ++num_calls;
    }
  }
  FATHOM_CHECK(!in_call, "the last call does not end");
  if (options.tools) check_no_markers(format, events);
}

inline void check_output(ChatFormat format, OutputParser::Options options, std::string_view bytes,
                         const std::vector<size_t>& cuts) {
  const Events whole = parse_in_pieces(format, options, bytes);
  const Events pieces = parse_in_pieces(format, options, bytes, cuts);
  FATHOM_CHECK(whole == pieces, "whole:\n"
                                    << describe(whole) << "in pieces:\n"
                                    << describe(pieces));
  check_events(format, whole, options);
  if (!options.reasoning && !options.tools) {
    FATHOM_CHECK(bytes.empty() ? whole.empty() : whole.size() == 1 && whole[0].text == bytes,
                 "text changed:\n"
                     << describe(whole));
  }
}

}  // namespace fathom::text::tests
