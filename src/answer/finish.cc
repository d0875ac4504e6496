#include "answer/finish.h"

#include "answer/pieces/json_text.h"

namespace fathom::answer {
namespace {

// The stop string or the id of the stop token; null when neither ended the choice.
void append_matched(std::string& out, const Choice& choice) {
  if (choice.finish() == Finish::kStop && choice.stop_string_found()) {
    append_json(out, choice.matched_string());
  } else if (choice.finish() == Finish::kStop && choice.matched_token() >= 0) {
    append_json(out, choice.matched_token());
  } else {
    out += "null";
  }
}

std::string_view openai_reason(const Choice& choice, FinishedCalls calls) {
  switch (choice.finish()) {
    case Finish::kNone:
      break;
    case Finish::kStop:
      // What reads the text as a structure must not take it for a whole one; matched_stop says what cut it.
      if (choice.is_cut_structure()) return R"("length")";
      if (calls == FinishedCalls::kFunction) return R"("function_call")";
      return calls == FinishedCalls::kTools ? R"("tool_calls")" : R"("stop")";
    case Finish::kLength:
      return R"("length")";
    case Finish::kAbort:
      return R"("abort")";
  }
  return "null";
}

}  // namespace

void append_openai_finish(std::string& out, const Choice& choice, FinishedCalls calls) {
  out += R"("finish_reason":)";
  out += openai_reason(choice, calls);
  out += R"(,"matched_stop":)";
  append_matched(out, choice);
}

void append_native_finish(std::string& out, const Choice& choice) {
  switch (choice.finish()) {
    case Finish::kNone:
      out += "null";
      return;
    case Finish::kStop:
      out += R"({"type":"stop","matched":)";
      append_matched(out, choice);
      out += '}';
      return;
    case Finish::kLength:
      out += R"({"type":"length","length":)";
      append_json(out, choice.counts().completion_tokens);
      out += '}';
      return;
    case Finish::kAbort:
      out += R"({"type":"abort","message":"the request was aborted","status_code":null,)";
      out += R"("err_type":null})";
      return;
  }
}

}  // namespace fathom::answer
