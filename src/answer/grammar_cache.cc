#include "answer/grammar_cache.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/memory.h"

namespace fathom::answer {
namespace {

int64_t bytes_of(const std::string& source, const CompiledForm& form) {
  const auto* grammar = std::get_if<GrammarPtr>(&form);
  const int64_t made = grammar != nullptr
                           ? (*grammar)->memory_bytes()
                           : static_cast<int64_t>(std::get<api::ApiError>(form).message.size());
  return made + 2 * static_cast<int64_t>(source.size());
}

}  // namespace

std::optional<CompiledForm> GrammarCache::find(const std::string& owner,
                                               const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto of_owner = owners_.find(owner);
  if (of_owner == owners_.end()) return std::nullopt;
  auto& [entries, by_source, bytes] = of_owner->second;
  const auto found = by_source.find(source);
  if (found == by_source.end()) return std::nullopt;
  entries.splice(entries.begin(), entries, found->second);
  return found->second->form;
}

void GrammarCache::add(const std::string& owner, const std::string& source, CompiledForm form) {
  const int64_t bytes = bytes_of(source, form);
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_) return;
  const memory::MustSucceed scope;  // an entry must be in the list and in the map, or in neither
  Owner& of_owner = owners_[owner];
  if (of_owner.by_source.contains(source)) return;
  of_owner.entries.push_front({.source = source, .form = std::move(form), .bytes = bytes});
  of_owner.by_source[source] = of_owner.entries.begin();
  of_owner.num_bytes += bytes;
  num_bytes_ += bytes;
  while (num_bytes_ > max_bytes_) drop_oldest_of_largest();
}

void GrammarCache::drop_oldest_of_largest() {
  const auto largest = std::max_element(
      owners_.begin(), owners_.end(),
      [](const auto& a, const auto& b) { return a.second.num_bytes < b.second.num_bytes; });
  Owner& owner = largest->second;
  const Entry& oldest = owner.entries.back();
  num_bytes_ -= oldest.bytes;
  owner.num_bytes -= oldest.bytes;
  owner.by_source.erase(oldest.source);
  owner.entries.pop_back();
  if (owner.entries.empty()) owners_.erase(largest);
}

int64_t GrammarCache::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace fathom::answer
