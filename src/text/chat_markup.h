#pragma once
// The special strings of the chat formats, each exactly as published checkpoints spell it. DeepSeek's use
// U+FF5C (fullwidth vertical line) and U+2581 (lower one eighth block); Kimi's are plain ASCII.
//
//   builder.markup(markup::kUser).text(content);
//
// Constants only.

#include <string_view>

#include "text/output/dsml_tag.h"

namespace fathom::text::markup {

// DeepSeek.
inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
inline constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
inline constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
inline constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kSep = "<｜tool▁sep｜>";
inline constexpr std::string_view kOutputsBegin = "<｜tool▁outputs▁begin｜>";
inline constexpr std::string_view kOutputsEnd = "<｜tool▁outputs▁end｜>";
inline constexpr std::string_view kOutputBegin = "<｜tool▁output▁begin｜>";
inline constexpr std::string_view kOutputEnd = "<｜tool▁output▁end｜>";
// V3.2: stands in its tags behind "<" or "</", which are plain text.
inline constexpr std::string_view kDsml = kDsmlMark;

// Moonshot (Kimi-K2, Moonlight).
inline constexpr std::string_view kImSystem = "<|im_system|>";
inline constexpr std::string_view kImUser = "<|im_user|>";
inline constexpr std::string_view kImAssistant = "<|im_assistant|>";
inline constexpr std::string_view kImMiddle = "<|im_middle|>";
inline constexpr std::string_view kImEnd = "<|im_end|>";
inline constexpr std::string_view kKimiSectionBegin = "<|tool_calls_section_begin|>";
inline constexpr std::string_view kKimiSectionEnd = "<|tool_calls_section_end|>";
inline constexpr std::string_view kKimiCallBegin = "<|tool_call_begin|>";
inline constexpr std::string_view kKimiArgumentBegin = "<|tool_call_argument_begin|>";
inline constexpr std::string_view kKimiCallEnd = "<|tool_call_end|>";

}  // namespace fathom::text::markup
