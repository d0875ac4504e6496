#include "kv_events/lane_events.h"

#include <span>

namespace fathom::kv_events {
namespace {

constexpr std::string_view kMedium = "GPU";

// What sets these blocks apart, as a router has to know it: "" = nothing, every prompt may find them.
std::string_view shown_salt(std::string_view salt) {
  // The name of a key, a line break, what the client asked for.
  return salt.substr(0, 1) == "\n" ? salt.substr(1) : salt;
}

}  // namespace

bool LaneEvents::add(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kStored:
      return store(event);
    case Event::Kind::kRemoved:
      remove(event.names.front());
      return true;
    case Event::Kind::kCleared:
      break;
  }
  counts_.clear();
  write_removed();
  events_.array(1);
  events_.text("AllBlocksCleared");
  ++num_events_;
  return true;
}

bool LaneEvents::store(const Event& event) {
  uint64_t parent = event.parent;
  if (parent != 0 && counts_.count(parent) == 0) return false;
  // Those that are there already come first: no block is published before its parent.
  size_t first = 0;
  for (; first < event.names.size() && counts_.count(event.names[first]) > 0; ++first) {
    ++counts_[event.names[first]];
    parent = event.names[first];
  }
  if (first == event.names.size()) return true;
  for (size_t i = first; i < event.names.size(); ++i) counts_[event.names[i]] = 1;
  write_removed();
  write_stored(event, first, parent);
  ++num_events_;
  return true;
}

void LaneEvents::write_stored(const Event& event, size_t first, uint64_t parent) {
  const bool is_salted = !shown_salt(event.salt).empty();
  events_.array(is_salted ? 9 : 8);
  events_.text("BlockStored");
  const std::span<const uint64_t> names = std::span(event.names).subspan(first);
  events_.array(names.size());
  for (const uint64_t name : names) events_.unsigned_integer(name);
  if (parent == 0) {
    events_.nil();
  } else {
    events_.unsigned_integer(parent);
  }
  const std::span<const int32_t> tokens =
      std::span(event.tokens).subspan(first * static_cast<size_t>(event.block_tokens));
  events_.array(tokens.size());
  for (const int32_t token : tokens) events_.unsigned_integer(static_cast<uint32_t>(token));
  events_.unsigned_integer(static_cast<uint32_t>(event.block_tokens));
  events_.nil();
  events_.text(kMedium);
  events_.nil();
  if (is_salted) write_salt(event, first, parent);
}

void LaneEvents::write_salt(const Event& event, size_t first, uint64_t parent) {
  events_.array(event.names.size() - first);
  for (size_t i = first; i < event.names.size(); ++i) {
    if (i > first || parent != 0) {
      events_.nil();
    } else {
      events_.array(1);
      events_.text(shown_salt(event.salt));
    }
  }
}

void LaneEvents::remove(uint64_t name) {
  const auto found = counts_.find(name);
  if (found == counts_.end() || --found->second > 0) return;
  counts_.erase(found);
  removed_.push_back(name);
}

void LaneEvents::write_removed() {
  if (removed_.empty()) return;
  events_.array(3);
  events_.text("BlockRemoved");
  events_.array(removed_.size());
  for (const uint64_t name : removed_) events_.unsigned_integer(name);
  events_.text(kMedium);
  removed_.clear();
  ++num_events_;
}

std::string LaneEvents::take_batch(double unix_seconds) {
  write_removed();
  if (num_events_ == 0) return "";
  MessagePack batch;
  batch.array(3);
  batch.real(unix_seconds);
  batch.array(static_cast<size_t>(num_events_));
  batch.append(events_.take());
  batch.unsigned_integer(static_cast<uint32_t>(lane_));
  num_events_ = 0;
  return batch.take();
}

}  // namespace fathom::kv_events
