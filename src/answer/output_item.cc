#include "answer/output_item.h"

#include "answer/pieces/json_text.h"
#include "api/kept_reasoning.h"

namespace fathom::answer {

std::string json_text_of(std::string_view text) {
  std::string out;
  append_json(out, text);
  return out;
}

std::string OutputItem::part(std::string_view shown_text) const {
  if (is_reasoning()) {
    return R"({"type":"reasoning_text","text":)" + json_text_of(shown_text) + '}';
  }
  return R"({"type":"output_text","text":)" + json_text_of(shown_text) +
         R"(,"annotations":[],"logprobs":[)" + (shown_text.empty() ? "" : logprobs) + "]}";
}

void OutputItem::append_call(std::string& out, bool is_begin) const {
  out += is_custom() ? R"(,"type":"custom_tool_call","call_id":)"
                     : R"(,"type":"function_call","call_id":)";
  append_json(out, call_id);
  out += R"(,"name":)";
  append_json(out, tool.name);
  if (!tool.name_space.empty()) {
    out += R"(,"namespace":)";
    append_json(out, tool.name_space);
  }
  out += is_custom() ? R"(,"input":)" : R"(,"arguments":)";
  append_json(out, is_begin ? std::string_view() : shown());
}

std::string OutputItem::json(std::string_view status, bool is_begin) const {
  std::string out = R"({"id":)" + json_text_of(id);
  if (is_call()) {
    append_call(out, is_begin);
  } else {
    out += is_reasoning() ? R"(,"type":"reasoning","summary":[],"content":[)"
                          : R"(,"type":"message","role":"assistant","content":[)";
    if (!is_begin) out += part(text);
    out += ']';
  }
  if (is_encrypted && !is_begin) {
    out += R"(,"encrypted_content":)" + json_text_of(api::keep_reasoning(text));
  }
  out += R"(,"status":")";
  out += status;
  out += "\"}";
  return out;
}

}  // namespace fathom::answer
