#include "nodes/agreement.h"

#include "base/json.h"

namespace fathom::nodes {
namespace {

constexpr size_t kMaxFactBytes = 200;

std::string fact_text(const json::Value* value) {
  if (value == nullptr) return "nothing";
  std::string text = json::dump(*value);
  if (text.size() > kMaxFactBytes) text = json::shown_text(text.substr(0, kMaxFactBytes)) + "...";
  return text;
}

const json::Value* member(const json::Value& object, const std::string& name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() ? nullptr : &*it;
}

void compare(const std::string& name, const json::Value* head, const json::Value* other,
             const std::string& other_name, std::vector<std::string>& found) {
  const bool are_objects =
      head != nullptr && other != nullptr && head->is_object() && other->is_object();
  if (!are_objects) {
    if (head == nullptr || other == nullptr || *head != *other)
      found.push_back(name + ": node 0 has " + fact_text(head) + ", " + other_name + " has " +
                      fact_text(other));
    return;
  }
  for (const auto& [key, value] : head->items())
    compare(key, &value, member(*other, key), other_name, found);
  for (const auto& [key, value] : other->items())
    if (member(*head, key) == nullptr) compare(key, nullptr, &value, other_name, found);
}

}  // namespace

std::vector<std::string> differences(const json::Value& head, const json::Value& other,
                                     const std::string& other_name) {
  std::vector<std::string> found;
  compare("facts", &head, &other, other_name, found);
  return found;
}

}  // namespace fathom::nodes
