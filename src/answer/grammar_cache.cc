#include "answer/grammar_cache.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/memory.h"

namespace fathom::answer {
namespace {

int64_t bytes_of(const grammar::CompiledGrammar& grammar) {
  return grammar.memory_bytes() + grammar.mask_bytes();
}

int64_t bytes_of(const std::string& source, const CompiledForm& form) {
  const auto* grammar = std::get_if<GrammarPtr>(&form);
  const int64_t made = grammar != nullptr
                           ? bytes_of(**grammar)
                           : static_cast<int64_t>(std::get<api::ApiError>(form).message.size());
  return std::max(GrammarCache::kMinEntryBytes, made + 2 * static_cast<int64_t>(source.size()));
}

}  // namespace

GrammarCache::GrammarCache(const Limits& limits)
    : max_bytes_(std::min(limits.max_bytes, limits.max_bytes_in_use / 4)),
      max_bytes_in_use_(limits.max_bytes_in_use) {}

std::optional<CompiledForm> GrammarCache::find(const std::string& owner,
                                               const std::string& source) {
  const MutexLock lock(mutex_);
  const auto of_owner = owners_.find(owner);
  if (of_owner == owners_.end()) return std::nullopt;
  std::list<Entry>& entries = of_owner->second.entries;
  const auto found = of_owner->second.by_source.find(source);
  if (found == of_owner->second.by_source.end()) return std::nullopt;
  entries.splice(entries.begin(), entries, found->second);
  return found->second->form;
}

void GrammarCache::add(const std::string& owner, const std::string& source, CompiledForm form) {
  const MutexLock lock(mutex_);
  const memory::MustSucceed scope;  // an entry must be in the list and in the map, or in neither
  Owner& of_owner = owners_[owner];
  if (of_owner.by_source.contains(source)) return;
  if (bytes_of(source, form) > max_bytes_) return lose(of_owner, form);
  of_owner.entries.push_front({.source = source, .form = std::move(form), .bytes = 0});
  of_owner.by_source[source] = of_owner.entries.begin();
  measure();
}

void GrammarCache::measure() {
  num_bytes_ = num_lost_bytes_ = 0;
  for (auto it = owners_.begin(); it != owners_.end();) {
    Owner& owner = it->second;
    owner.num_bytes = owner.num_lost_bytes = 0;
    for (Entry& entry : owner.entries) {
      entry.bytes = bytes_of(entry.source, entry.form);
      owner.num_bytes += entry.bytes;
    }
    std::erase_if(owner.lost, [](const auto& grammar) { return grammar.expired(); });
    for (const auto& lost : owner.lost)
      if (const GrammarPtr grammar = lost.lock()) owner.num_lost_bytes += bytes_of(*grammar);
    num_bytes_ += owner.num_bytes;
    num_lost_bytes_ += owner.num_lost_bytes;
    it = owner.entries.empty() && owner.lost.empty() ? owners_.erase(it) : std::next(it);
  }
  while (num_bytes_ > max_bytes_) drop_oldest_of_largest();
}

void GrammarCache::lose(Owner& owner, const CompiledForm& form) {
  const auto* grammar = std::get_if<GrammarPtr>(&form);
  if (grammar == nullptr) return;
  owner.lost.push_back(*grammar);
  owner.num_lost_bytes += bytes_of(**grammar);
  num_lost_bytes_ += bytes_of(**grammar);
}

void GrammarCache::drop_oldest_of_largest() {
  const auto largest = std::max_element(
      owners_.begin(), owners_.end(),
      [](const auto& a, const auto& b) { return a.second.num_bytes < b.second.num_bytes; });
  Owner& owner = largest->second;
  const Entry& oldest = owner.entries.back();
  num_bytes_ -= oldest.bytes;
  owner.num_bytes -= oldest.bytes;
  lose(owner, oldest.form);
  owner.by_source.erase(oldest.source);
  owner.entries.pop_back();
}

bool GrammarCache::exceeds_use(const std::string& owner) const {
  const auto found = owners_.find(owner);
  const int64_t own =
      found == owners_.end() ? 0 : found->second.num_bytes + found->second.num_lost_bytes;
  return num_bytes_ + num_lost_bytes_ > max_bytes_in_use_ || own > max_bytes_in_use_ / 2;
}

bool GrammarCache::has_room(const std::string& owner) {
  const MutexLock lock(mutex_);
  if (!exceeds_use(owner)) return true;
  const memory::MustSucceed scope;
  measure();
  return !exceeds_use(owner);
}

int64_t GrammarCache::num_bytes() const {
  const MutexLock lock(mutex_);
  return num_bytes_;
}

}  // namespace fathom::answer
