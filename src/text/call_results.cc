#include "text/call_results.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "text/chat_encoders.h"
#include "text/pieces/json_fields.h"

namespace fathom::text {
namespace {

bool has_calls(const Message& message) {
  return message.role == "assistant" && !message.tool_calls.empty();
}

// Messages of the assistant behind its calls go on with the same turn.
void join_turns(std::vector<Message>& messages, std::vector<size_t>& order) {
  size_t num_kept = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    Message* const last = num_kept > 0 ? &messages[num_kept - 1] : nullptr;
    if (last != nullptr && has_calls(*last) && messages[i].role == "assistant") {
      Message& more = messages[i];
      if (more.content) last->content = last->content.value_or("") + *more.content;
      last->reasoning += more.reasoning;
      std::ranges::move(more.tool_calls, std::back_inserter(last->tool_calls));
      continue;
    }
    if (num_kept != i) messages[num_kept] = std::move(messages[i]);
    order[num_kept++] = order[i];
  }
  messages.resize(num_kept);
  order.resize(num_kept);
}

// A call that max_tokens cut was never made, so a history may go on without its result.
bool was_cut(const ToolCall& call) { return !json::parse(call.arguments); }

class Binder {
 public:
  Binder(std::vector<Message>& messages, const ResultRules& rules, std::vector<size_t>& order)
      : messages_(messages), rules_(rules), order_(order) {}

  Status bind() {
    for (size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      const bool is_result = message.role == "tool";
      const bool closes = !is_result && !is_system(message) && is_strict();
      if (Status closed = closes ? close_turns() : Status(); !closed) return closed;
      if (has_calls(message)) open_turn(i);
      if (Status taken = is_result ? take_result(i) : Status(); !taken) return taken;
    }
    if (Status closed = close_turns(); !closed) return closed;
    reorder();
    return {};
  }

 private:
  struct Turn {
    size_t message;                     // that makes the calls
    std::vector<size_t> results;        // of each call: the message, or kNone
    std::vector<size_t> sent = {};      // the same, as they came
    std::vector<size_t> nameless = {};  // results without an id: they take what is left
  };
  struct CallRef {
    size_t turn, call;
  };
  static constexpr size_t kNone = static_cast<size_t>(-1);

  bool is_strict() const { return rules_.place != ResultPlace::kAnywhereBehind; }

  std::string place_of(size_t message) const {
    return "messages[" + std::to_string(order_[message]) + "]";
  }

  void open_turn(size_t message) {
    const std::vector<ToolCall>& calls = messages_[message].tool_calls;
    turns_.push_back({.message = message, .results = std::vector<size_t>(calls.size(), kNone)});
    // The last one is taken first: the newest turn's, and there the first call's.
    for (size_t call = calls.size(); call-- > 0;) {
      open_[calls[call].id].push_back({.turn = turns_.size() - 1, .call = call});
    }
  }

  Status take_result(size_t message) {
    const std::string& id = messages_[message].tool_call_id;
    if (num_closed_ == turns_.size() && is_strict()) {
      return result_without_call(place_of(message));
    }
    if (id.empty() && is_strict()) {
      turns_.back().nameless.push_back(message);
      return {};
    }
    const auto named = open_.find(id);
    if (named != open_.end() && named->second.empty()) {
      return invalid_argument(place_of(message) + ": is a second result of the call " +
                              in_quotes(id) + ", must be the only one");
    }
    // Calls without ids are answered in their order.
    const auto found = named != open_.end() ? named : open_.find(std::string_view());
    if (found == open_.end() || found->second.empty()) {
      return invalid_argument(place_of(message) + ": is the result of the call " + in_quotes(id) +
                              ", which is none of the calls " +
                              (is_strict() ? "right before it" : "before it"));
    }
    const CallRef call = found->second.back();
    found->second.pop_back();
    give(turns_[call.turn], call.call, message);
    return {};
  }

  void give(Turn& turn, size_t call, size_t message) {
    turn.results[call] = message;
    turn.sent.push_back(message);
  }

  Status close_turns() {
    for (; num_closed_ < turns_.size(); ++num_closed_) {
      if (Status closed = close(turns_[num_closed_]); !closed) return closed;
    }
    open_.clear();
    return {};
  }

  Status close(Turn& turn) {
    const std::vector<ToolCall>& calls = messages_[turn.message].tool_calls;
    size_t call = 0;
    for (const size_t message : turn.nameless) {
      while (call < calls.size() && turn.results[call] != kNone) ++call;
      if (call == calls.size()) {
        return invalid_argument(place_of(message) +
                                ": is a result without tool_call_id, but every call before it "
                                "has a result");
      }
      messages_[message].tool_call_id = calls[call].id;
      give(turn, call, message);
    }
    std::ranges::sort(turn.sent);
    const bool is_last = turn.message + 1 == messages_.size();
    if (is_last && rules_.may_end_in_calls) return {};
    size_t missing_idx = 0;
    while (missing_idx < calls.size() &&
           (turn.results[missing_idx] != kNone || was_cut(calls[missing_idx]))) {
      ++missing_idx;
    }
    if (missing_idx == calls.size()) return {};
    const ToolCall& unanswered = calls[missing_idx];
    return invalid_argument(
        place_of(turn.message) + ".tool_calls[" + std::to_string(missing_idx) + "]: the call " +
        (unanswered.id.empty() ? "of " + in_quotes(unanswered.name) : in_quotes(unanswered.id)) +
        " has no result, must have one " +
        (is_strict() ? "in the messages right behind it" : "behind it"));
  }

  void reorder() {
    std::vector<size_t> from;
    from.reserve(messages_.size());
    size_t next_turn = 0;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role == "tool") continue;
      from.push_back(i);
      if (!has_calls(messages_[i])) continue;
      const Turn& turn = turns_[next_turn++];
      if (turn.sent.empty()) continue;
      const std::vector<size_t>& results = rules_.keeps_order ? turn.sent : turn.results;
      std::ranges::copy_if(results, std::back_inserter(from),
                           [](size_t result) { return result != kNone; });
    }
    if (std::ranges::is_sorted(from)) return;
    std::vector<Message> moved;
    std::vector<size_t> order;
    moved.reserve(from.size());
    for (const size_t i : from) {
      moved.push_back(std::move(messages_[i]));
      order.push_back(order_[i]);
    }
    messages_ = std::move(moved);
    order_ = std::move(order);
  }

  std::vector<Message>& messages_;
  const ResultRules& rules_;
  std::vector<size_t>& order_;
  std::vector<Turn> turns_;
  size_t num_closed_ = 0;
  // Calls without a result by their id; an empty list: all have one.
  std::map<std::string, std::vector<CallRef>, std::less<>> open_;
};

}  // namespace

Status bind_results(std::vector<Message>& messages, const ResultRules& rules,
                    std::vector<size_t>& order) {
  order.resize(messages.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (rules.place == ResultPlace::kBehindTurn) join_turns(messages, order);
  return Binder(messages, rules, order).bind();
}

}  // namespace fathom::text
