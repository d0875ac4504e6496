#include "tests/ops/sample_rows.h"

#include <cmath>

#include "ops/sample.h"

namespace fathom::ops_test {
namespace {

// Parameter columns as the operator takes them.
struct Columns {
  std::vector<float> logits, temperature, top_p, min_p, repetition, frequency, presence,
      bias_values;
  // Of slots.
  std::vector<int32_t> top_k, num_top, penalty_row, counts, bias_start, ban_start, ban_end,
      ban_until, bias_ids;
  // Of rows.
  std::vector<int32_t> slot, position, forced;
  std::vector<uint64_t> seed, mask;
  int32_t penalty_rows = 0;
  bool has_mask = false, has_path = false;
  std::vector<int32_t> paths = {};  // [rows, max_path]
};

// In a slot bans stand behind the biases.
void append_biases(const std::vector<std::pair<int32_t, double>>& biases, Columns& c) {
  const auto append = [&](bool bans) {
    const auto begin = static_cast<int32_t>(c.bias_ids.size());
    for (const auto& [id, value] : biases) {
      if (bans != (value == -HUGE_VAL)) continue;
      c.bias_ids.push_back(id);
      c.bias_values.push_back(static_cast<float>(value));
    }
    return begin;
  };
  c.bias_start.push_back(append(false));
  c.ban_start.push_back(append(true));
  c.ban_end.push_back(static_cast<int32_t>(c.bias_ids.size()));
}

void append_rules(const ref::SamplerRow& rules, Columns& c) {
  c.temperature.push_back(static_cast<float>(rules.temperature));
  c.top_p.push_back(static_cast<float>(rules.top_p));
  c.min_p.push_back(static_cast<float>(rules.min_p));
  c.repetition.push_back(static_cast<float>(rules.repetition));
  c.frequency.push_back(static_cast<float>(rules.frequency));
  c.presence.push_back(static_cast<float>(rules.presence));
  c.top_k.push_back(rules.top_k);
  c.penalty_row.push_back(rules.counts.empty() ? -1 : c.penalty_rows++);
  c.counts.insert(c.counts.end(), rules.counts.begin(), rules.counts.end());
  append_biases(rules.bias, c);
}

void append_logits(const ref::SamplerRow& rules, Columns& c) {
  for (const double logit : rules.logits) c.logits.push_back(static_cast<float>(logit));
  std::vector<uint64_t> words((rules.logits.size() + 63) / 64, rules.allowed.empty() ? ~0ull : 0);
  for (size_t id = 0; id < rules.allowed.size(); ++id) {
    if (rules.allowed[id]) words[id / 64] |= uint64_t{1} << (id % 64);
  }
  c.mask.insert(c.mask.end(), words.begin(), words.end());
  c.has_mask |= !rules.allowed.empty();
}

// Slots lie in the opposite order of rows, so that neither can be taken for the other.
Columns columns_of(const std::vector<SampleRow>& rows, size_t max_path) {
  Columns c;
  for (size_t i = rows.size(); i-- > 0;) {
    append_rules(rows[i].rules, c);
    c.seed.push_back(rows[i].seed);
    c.num_top.push_back(rows[i].num_top);
    c.ban_until.push_back(rows[i].position + (rows[i].is_past_bans ? 0 : 1));
  }
  for (const SampleRow& row : rows) {
    append_logits(row.rules, c);
    c.slot.push_back(row.is_padding ? -1 : static_cast<int32_t>(rows.size() - 1 - c.slot.size()));
    c.position.push_back(row.position);
    c.forced.push_back(row.forced);
    c.has_path |= !row.path.empty();
    c.paths.insert(c.paths.end(), row.path.begin(), row.path.end());
    c.paths.resize(c.forced.size() * max_path, -1);
  }
  return c;
}

}  // namespace

std::vector<SampleOutcome> SampleTest::sample(const std::vector<SampleRow>& rows) {
  const Columns c = columns_of(rows, kMaxPath);
  const auto n = static_cast<int64_t>(rows.size());
  const auto vocab_size = static_cast<int64_t>(rows.empty() ? 8 : rows[0].rules.logits.size());
  const auto biases = static_cast<int64_t>(c.bias_ids.size());
  const DeviceTensor logits = upload({n, vocab_size}, c.logits);
  const DeviceTensor temperature = upload({n}, c.temperature), top_k = upload({n}, c.top_k);
  const DeviceTensor top_p = upload({n}, c.top_p), min_p = upload({n}, c.min_p);
  const DeviceTensor repetition = upload({n}, c.repetition), frequency = upload({n}, c.frequency);
  const DeviceTensor presence = upload({n}, c.presence), seed = upload({n}, c.seed);
  const DeviceTensor position = upload({n}, c.position), penalty_row = upload({n}, c.penalty_row);
  const DeviceTensor counts = upload({c.penalty_rows, vocab_size}, c.counts);
  const DeviceTensor bias_start = upload({n}, c.bias_start), ban_start = upload({n}, c.ban_start);
  const DeviceTensor ban_end = upload({n}, c.ban_end), ban_until = upload({n}, c.ban_until);
  const DeviceTensor slot = upload({n}, c.slot);
  const DeviceTensor bias_ids = upload({biases}, c.bias_ids);
  const DeviceTensor bias_values = upload({biases}, c.bias_values);
  const DeviceTensor mask = upload({n, (vocab_size + 63) / 64}, c.mask);
  const DeviceTensor num_top = upload({n}, c.num_top), forced = upload({n}, c.forced);
  const DeviceTensor paths = upload({n, kMaxPath}, c.paths);
  const DeviceTensor tokens = empty(DType::kI32, {n}), logprobs = empty(DType::kF32, {n});
  const DeviceTensor top_ids = empty(DType::kI32, {n, kMaxTop});
  const DeviceTensor top_logprobs = empty(DType::kF32, {n, kMaxTop});
  const DeviceTensor failed = empty(DType::kU8, {n});
  ops::sample({.slots = {.temperature = temperature.view(),
                         .top_k = top_k.view(),
                         .top_p = top_p.view(),
                         .min_p = min_p.view(),
                         .repetition = repetition.view(),
                         .frequency = frequency.view(),
                         .presence = presence.view(),
                         .seed = seed.view(),
                         .num_top = num_top.view(),
                         .penalty_row = penalty_row.view(),
                         .counts = c.penalty_rows > 0 ? counts.view() : Tensor(),
                         .bias_start = bias_start.view(),
                         .ban_start = ban_start.view(),
                         .ban_end = ban_end.view(),
                         .ban_until = ban_until.view(),
                         .bias_ids = bias_ids.view(),
                         .bias_values = bias_values.view()},
               .logits = logits.view(),
               .slot = slot.view(),
               .position = position.view(),
               .forced = forced.view(),
               .mask = c.has_mask ? mask.view() : Tensor(),
               .paths = c.has_path ? paths.view() : Tensor(),
               .tokens = tokens.view(),
               .logprobs = logprobs.view(),
               .top_ids = top_ids.view(),
               .top_logprobs = top_logprobs.view(),
               .failed = failed.view()},
              stream());
  const auto token = download_as<int32_t>(tokens.view());
  const auto logprob = download_as<float>(logprobs.view());
  const auto has_failed = download_as<uint8_t>(failed.view());
  const auto ids = download_as<int32_t>(top_ids.view());
  const auto tops = download_as<float>(top_logprobs.view());
  std::vector<SampleOutcome> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i) * kMaxTop;
    out.push_back({.token = token[i],
                   .logprob = logprob[i],
                   .failed = has_failed[i],
                   .top_ids = {ids.begin() + at, ids.begin() + at + kMaxTop},
                   .top_logprobs = {tops.begin() + at, tops.begin() + at + kMaxTop}});
  }
  return out;
}

std::vector<SampleOutcome> SampleTest::sample_on_reference(const std::vector<SampleRow>& rows) {
  run_on(reference_backend());
  std::vector<SampleOutcome> out = sample(rows);
  run_on(GetParam());
  return out;
}

std::vector<double> random_logits(ref::Random& random, int64_t vocab_size, double deviation) {
  return random.normal(DType::kF32, {vocab_size}, deviation).values;
}

}  // namespace fathom::ops_test
