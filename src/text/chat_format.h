#pragma once
// The chat formats that the program writes natively, and which of them a checkpoint needs. There is no
// template interpreter: a published template is recognised by what only it contains, and never run.
//
//   Result<ChatFormat> format = detect_chat_format({.model_type = "deepseek_v3", .chat_template = source});
//   if (!format) warn(format.error().message);   // names the formats that --chat-format takes
//
// Thread-safe (no state).

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/conversation.h"

namespace fathom::text {

enum class ChatFormat {
  kV2,         // DeepSeek-V2, V2-Lite, Coder-V2: "User: ", "Assistant: "
  kV3,         // DeepSeek-V2.5, V3
  kV3_0324,    // DeepSeek-V3-0324: the user's turn ends with <｜Assistant｜>
  kV3Tools,    // the published tool-calling template of V3
  kR1,         // DeepSeek-R1: the answer opens with <think>
  kR1_0528,    // DeepSeek-R1-0528: the model writes <think> itself
  kR1Tools,    // the published tool-calling template of R1
  kV31,        // DeepSeek-V3.1: thinking on or off
  kV32,        // DeepSeek-V3.2: calls in DSML, reasoning kept within a chain of calls
  kKimiK2,     // Kimi-K2
  kMoonlight,  // Moonlight: Kimi's turns, no tools
};

struct ChatFormatTraits {
  ChatFormat format;
  std::string_view name;        // as --chat-format takes it
  std::string_view summary;     // one line for --help
  bool takes_tools;             // tool calls and results have a place in the text
  bool shows_call_ids = false;  // the model reads by id which result is whose; else by the order
};

// In the order of the enum.
std::span<const ChatFormatTraits> chat_formats();
const ChatFormatTraits& traits(ChatFormat format);
std::string_view chat_format_name(ChatFormat format);
std::optional<ChatFormat> chat_format_from_name(std::string_view name);
// "v2, v3, …", for error messages and help.
std::string chat_format_names();

// What a checkpoint says about itself; empty strings where it says nothing.
struct CheckpointChatHints {
  std::string model_type = {};     // config.json: deepseek_v2, deepseek_v32, kimi_k2
  std::string chat_template = {};  // tokenizer_config.json, or the text of chat_template.jinja
};

// The format whose published template this is. Without a template, model types that only ever had one
// format decide. Otherwise an error that names the formats.
Result<ChatFormat> detect_chat_format(const CheckpointChatHints& hints);

// Whether it has tools, calls or their results.
bool speaks_of_tools(const Conversation& conversation);

// The format for one conversation: v3 and r1 hand over to their tool-calling forms as soon as tools, calls
// or results appear, because their plain templates drop the tools and run later calls together.
ChatFormat format_for(ChatFormat format, const Conversation& conversation);

// Whether a prompt of the format leaves it to the model to write <think>, or not to reason.
bool model_opens_reasoning(ChatFormat format);

// The special strings that the output parser reads and that therefore must survive detokenisation.
std::vector<std::string_view> output_markers(ChatFormat format);

}  // namespace fathom::text
