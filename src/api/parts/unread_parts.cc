#include "api/parts/unread_parts.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace fathom::api {
namespace {

// What the APIs call the same thing.
constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
    {"image", "image"},       {"image_url", "image"}, {"input_image", "image"},
    {"input_audio", "audio"}, {"audio", "audio"},     {"audio_url", "audio"},
    {"video", "video"},       {"video_url", "video"}, {"input_video", "video"},
    {"file", "file"},         {"input_file", "file"}, {"container_upload", "file"},
    {"document", "document"},
};

// A client's words within ours: short, on one line.
std::string shown_words(std::string_view words) {
  std::string shown = json::shown_text(words);
  shown.erase(shown.rfind('"'), 1);
  return shown.substr(1);
}

}  // namespace

size_t newest_question(size_t num_messages, const std::function<Speaker(size_t)>& speaker_of) {
  size_t question = std::string::npos;
  for (size_t i = num_messages; i-- > 0;) {
    const Speaker speaker = speaker_of(i);
    if (speaker == Speaker::kTool) return std::string::npos;
    if (speaker == Speaker::kModel) break;
    if (speaker == Speaker::kPerson && question == std::string::npos) question = i;
  }
  return question;
}

std::string bracketed(std::string_view type, std::string_view name) {
  const auto* kind = std::ranges::find(kKinds, type, [](const auto& entry) { return entry.first; });
  std::string text = "[";
  text += kind == std::ranges::end(kKinds) ? shown_words(type) : std::string(kind->second);
  if (!name.empty()) text += ": " + shown_words(name);
  return text + "]";
}

void refuse_unread(FieldReader& part) {
  part.fail("type", "text: this model reads no pictures, documents or sounds");
}

}  // namespace fathom::api
