#include "apps/fathom_bench/acceptance.h"

#include "base/json.h"

namespace fathom::apps {
namespace {

const json::Value* first_state(const json::Value& info) {
  if (!info.is_object()) return nullptr;
  const auto states = info.find("internal_states");
  if (states == info.end() || !states->is_array() || states->empty()) return nullptr;
  return (*states)[0].is_object() ? &(*states)[0] : nullptr;
}

std::optional<int64_t> count(const json::Value* state, const char* key) {
  if (state == nullptr) return std::nullopt;
  const auto value = state->find(key);
  if (value == state->end() || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

// How much a count grew. A server that was started anew in between counts from 0.
std::optional<int64_t> grown(const json::Value* before, const json::Value* after, const char* key) {
  const std::optional<int64_t> now = count(after, key);
  if (!now) return std::nullopt;
  const int64_t then = count(before, key).value_or(0);
  return *now >= then ? *now - then : *now;
}

bool is_simulated(const json::Value& info) {
  if (!info.is_object()) return false;
  const auto length = info.find("simulate_accept_length");
  const auto engine = info.find("engine");
  return (length != info.end() && length->is_number()) ||
         (engine != info.end() && *engine == "sim");
}

}  // namespace

Acceptance acceptance(const json::Value& info_before, const json::Value& info_after) {
  const json::Value* before = first_state(info_before);
  const json::Value* after = first_state(info_after);
  Acceptance result{.simulated = is_simulated(info_after)};
  if (after == nullptr) return result;
  const std::optional<int64_t> steps = grown(before, after, "spec_verify_ct");
  const std::optional<int64_t> verified = grown(before, after, "spec_num_verified_drafts");
  const std::optional<int64_t> accepted = grown(before, after, "spec_num_accepted_drafts");
  if (!steps || !verified || !accepted) {
    const auto average = after->find("avg_spec_accept_length");
    if (average != after->end() && average->is_number()) result.length = average->get<double>();
    return result;
  }
  result.num_verify_steps = *steps;
  if (*steps > 0) {
    result.length = 1 + static_cast<double>(*accepted) / static_cast<double>(*steps);
  }
  if (*verified > 0) {
    result.rate = static_cast<double>(*accepted) / static_cast<double>(*verified);
  }
  return result;
}

}  // namespace fathom::apps
