#include "core/step_codec.h"

#include <algorithm>
#include <string>

#include "base/token_mask.h"
#include "core/step_fields.h"

namespace fathom::core {
namespace {

// Rises with every change of what follows.
constexpr uint8_t kVersion = 1;
enum class Kind : uint8_t { kBatch = 1, kMasks, kResult };

template <class T>
std::vector<std::byte> encode_as(Kind kind, const T& value) {
  ByteWriter writer;
  writer(kind, kVersion, value);
  return writer.take();
}

template <class T>
Result<T> decode_as(Kind kind, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Kind what{};
  uint8_t version = 0;
  reader(what, version);
  if (what != kind || version != kVersion)
    return invalid_argument("a message is of kind " + std::to_string(static_cast<int>(what)) +
                            ", version " + std::to_string(version) + ", must be of kind " +
                            std::to_string(static_cast<int>(kind)) + ", version " +
                            std::to_string(kVersion));
  T value;
  reader(value);
  if (!reader.ended())
    return invalid_argument("a message of " + std::to_string(bytes.size()) + " bytes, kind " +
                            std::to_string(static_cast<int>(kind)) +
                            ", does not end where it says");
  return value;
}

// The first rule that is broken counts.
class Rules {
 public:
  // what: "slice 3's slot".
  void in(int64_t value, int64_t begin, int64_t end, const char* what) {
    if (value >= begin && value < end) return;
    broken(std::string(what) + " is " + std::to_string(value) + ", must be in [" +
           std::to_string(begin) + ", " + std::to_string(end) + ")");
  }
  void is(bool ok, const char* rule) {
    if (!ok) broken(rule);
  }
  void obey(const Status& status) {
    if (!status) broken(status.error().message);
  }
  void all_in(const std::vector<int32_t>& values, int64_t end, const char* what) {
    for (const int32_t value : values) in(value, 0, end, what);
  }
  Status status(const char* of_what, int64_t step_id) const {
    if (message_.empty()) return {};
    return invalid_argument(std::string(of_what) + " of step " + std::to_string(step_id) + ": " +
                            message_);
  }

 private:
  void broken(std::string message) {
    if (message_.empty()) message_ = std::move(message);
  }
  std::string message_;
};

void check(const SlotAdmission& admission, const StepLimits& limits, Rules& rules) {
  rules.in(admission.slot, 0, limits.num_slots, "an admission's slot");
  rules.in(std::ssize(admission.prompt), 1, limits.max_context_tokens + 1,
           "an admission's number of tokens");
  rules.all_in(admission.prompt, limits.vocab_size, "an admission's token");
  rules.in(admission.num_cached_tokens, 0, std::ssize(admission.prompt),
           "an admission's number of cached tokens");
  rules.in(admission.num_generated_tokens, 0, std::ssize(admission.prompt),
           "an admission's number of generated tokens");
  rules.is(admission.max_rows >= 0, "an admission's max_rows must not be negative");
  rules.obey(validate(admission.sampling, limits.vocab_size));
  rules.in(std::ssize(admission.stop_token_ids), 0, kMaxStopTokenIds + kMaxEosTokenIds + 1,
           "an admission's number of stop tokens");
  rules.is(std::all_of(admission.stop_token_ids.begin(), admission.stop_token_ids.end(),
                       [](int32_t token) { return token >= 0; }),
           "an admission's stop token must not be negative");
}

void check(const BlockAppend& append, const StepLimits& limits, Rules& rules) {
  rules.in(append.slot, 0, limits.num_slots, "a block append's slot");
  rules.in(append.kv_group, 0, std::ssize(limits.num_blocks), "a block append's kv_group");
  if (append.kv_group < 0 || append.kv_group >= std::ssize(limits.num_blocks)) return;
  rules.all_in(append.block_ids, limits.num_blocks[static_cast<size_t>(append.kv_group)],
               "an appended block");
}

void check(const SequenceSlice& slice, const StepLimits& limits, Rules& rules) {
  constexpr int kMaxTreeTokens = 64;
  const auto fits = [&](size_t size) {
    return size == 0 || std::cmp_equal(size, slice.num_tokens);
  };
  rules.in(slice.slot, 0, limits.num_slots, "a slice's slot");
  const int most = slice.tokens.empty() ? limits.max_drafts + 1 : limits.max_batch_tokens;
  rules.in(slice.num_tokens, 1, int64_t{most} + 1, "a slice's number of tokens");
  rules.is(fits(slice.tokens.size()) && fits(slice.tree_mask.size()) &&
               fits(slice.relative_positions.size()),
           "a slice must have as many tokens, rows of its tree and positions as it says");
  rules.in(std::ssize(slice.tree_mask), 0, kMaxTreeTokens + 1, "a tree's number of tokens");
  rules.all_in(slice.tokens, limits.vocab_size, "a slice's token");
  rules.all_in(slice.relative_positions, limits.max_context_tokens, "a slice's position");
  rules.in(static_cast<int64_t>(slice.outputs), 0, 3, "a slice's outputs");
  rules.in(slice.num_drafts_to_propose, 0, int64_t{limits.max_drafts} + 1,
           "a slice's number of drafts");
}

// A slot that something of a list names twice.
template <class List, class SlotOf>
bool has_twice(const List& list, const SlotOf& slot_of) {
  std::vector<int32_t> slots;
  for (const auto& each : list) slots.push_back(slot_of(each));
  std::sort(slots.begin(), slots.end());
  return std::adjacent_find(slots.begin(), slots.end()) != slots.end();
}

int64_t query_tokens(const Batch& batch) {
  int64_t tokens = 0;
  for (const SequenceSlice& slice : batch.slices) tokens += slice.num_tokens;
  return tokens;
}

// A shape that is not the other lanes' would leave them in a collective for ever.
void check_shape(const Batch& batch, const StepLimits& limits, Rules& rules) {
  const StepShape& shape = batch.shape;
  const size_t entries = limits.num_lanes > 1 ? static_cast<size_t>(limits.num_lanes) : 0;
  rules.is(shape.lane_tokens.size() == entries && shape.lane_slices.size() == entries,
           "the step's shape must have an entry for each of several lanes");
  rules.all_in(shape.lane_tokens, int64_t{limits.max_batch_tokens} + 1, "a lane's tokens");
  rules.all_in(shape.lane_slices, int64_t{limits.num_slots} + 1, "a lane's slices");
  rules.in(shape.most_drafts, 0, int64_t{limits.max_drafts} + 1, "the step's most drafts");
  rules.in(shape.going_on_tokens, 0, int64_t{limits.max_drafts} + 2, "the step's longest slice");
  int64_t tokens = 0;
  for (const int32_t of_lane : shape.lane_tokens) tokens += of_lane;
  rules.in(tokens, 0, int64_t{limits.max_batch_tokens} + 1, "the step's number of tokens");
  const auto lane = static_cast<size_t>(limits.lane);
  if (lane >= shape.lane_tokens.size() || lane >= shape.lane_slices.size()) return;
  rules.is(shape.lane_tokens[lane] == query_tokens(batch) &&
               shape.lane_slices[lane] == std::ssize(batch.slices),
           "the step's shape must have the lane's tokens and slices");
}

Status check(const Batch& batch, const StepLimits& limits) {
  Rules rules;
  rules.is(batch.step_id >= 0, "a step's number must not be negative");
  for (const SlotAdmission& admission : batch.admissions) check(admission, limits, rules);
  for (const BlockAppend& append : batch.block_appends) check(append, limits, rules);
  for (const SequenceSlice& slice : batch.slices) check(slice, limits, rules);
  rules.all_in(batch.releases, limits.num_slots, "a released slot");
  const auto own = [](int32_t slot) { return slot; };
  const auto of_struct = [](const auto& each) { return each.slot; };
  rules.is(!has_twice(batch.admissions, of_struct) && !has_twice(batch.slices, of_struct) &&
               !has_twice(batch.releases, own),
           "a slot must be admitted, computed and released once");
  rules.in(query_tokens(batch), 0, int64_t{limits.max_batch_tokens} + 1,
           "the number of query tokens");
  check_shape(batch, limits, rules);
  return rules.status("the batch", batch.step_id);
}

Status check(const StepMasks& masks, const StepLimits& limits) {
  Rules rules;
  const auto row_words = static_cast<size_t>(num_mask_words(limits.vocab_size));
  rules.is(masks.step_id >= 0, "a step's number must not be negative");
  for (const SliceMask& mask : masks.masks) {
    rules.in(mask.slice_idx, 0, limits.num_slots, "a mask's slice");
    rules.is(!mask.words.empty() && mask.words.size() % row_words == 0,
             "a mask must have whole rows");
  }
  rules.is(!has_twice(masks.masks, [](const SliceMask& mask) { return mask.slice_idx; }),
           "a slice must have one mask");
  return rules.status("the masks", masks.step_id);
}

void check(const std::vector<SampledToken>& tokens, const StepLimits& limits, Rules& rules) {
  for (const SampledToken& token : tokens) {
    rules.in(token.token, 0, limits.vocab_size, "a token");
    rules.in(std::ssize(token.top_logprobs), 0, kMaxTopLogprobs + 1,
             "a token's number of alternatives");
    for (const auto& [alternative, logprob] : token.top_logprobs)
      rules.in(alternative, 0, limits.vocab_size, "an alternative");
  }
}

void check(const SliceResult& slice, const StepLimits& limits, Rules& rules) {
  rules.in(slice.slot, 0, limits.num_slots, "a slice's slot");
  rules.in(std::ssize(slice.tokens), 0, int64_t{limits.max_batch_tokens} + 1,
           "a slice's number of tokens");
  check(slice.tokens, limits, rules);
  check(slice.prompt_logprobs, limits, rules);
  rules.in(slice.num_verified_drafts, 0, int64_t{limits.max_drafts} + 1,
           "a slice's number of verified drafts");
  rules.in(std::ssize(slice.drafts), 0, int64_t{limits.max_drafts} + 1,
           "a slice's number of drafts");
  for (int64_t i = 0; i < std::ssize(slice.drafts); ++i) {
    const Draft& draft = slice.drafts[static_cast<size_t>(i)];
    rules.in(draft.token, 0, limits.vocab_size, "a draft");
    rules.in(draft.parent, -1, i, "a draft's parent");
  }
}

Status check(const StepResult& result, const StepLimits& limits) {
  Rules rules;
  rules.is(result.step_id >= 0, "a step's number must not be negative");
  for (const SliceResult& slice : result.slices) check(slice, limits, rules);
  rules.is(!has_twice(result.slices, [](const SliceResult& slice) { return slice.slot; }),
           "a slot must have one result");
  return rules.status("the result", result.step_id);
}

template <class T>
Result<T> checked(Result<T> value, const StepLimits& limits) {
  if (!value) return value;
  if (const Status status = check(*value, limits); !status) return status.error();
  return value;
}

}  // namespace

std::vector<std::byte> encode(const Batch& batch) { return encode_as(Kind::kBatch, batch); }
std::vector<std::byte> encode(const StepMasks& masks) { return encode_as(Kind::kMasks, masks); }
std::vector<std::byte> encode(const StepResult& result) { return encode_as(Kind::kResult, result); }

Result<Batch> decode_batch(std::span<const std::byte> bytes, const StepLimits& limits) {
  return checked(decode_as<Batch>(Kind::kBatch, bytes), limits);
}

Result<StepMasks> decode_masks(std::span<const std::byte> bytes, const StepLimits& limits) {
  return checked(decode_as<StepMasks>(Kind::kMasks, bytes), limits);
}

Result<StepResult> decode_result(std::span<const std::byte> bytes, const StepLimits& limits) {
  return checked(decode_as<StepResult>(Kind::kResult, bytes), limits);
}

}  // namespace fathom::core
