#include "apps/engine/rank_listing.h"

#include <algorithm>
#include <cstdio>

#include "apps/engine/memory_fit.h"
#include "apps/engine/progress.h"
#include "comm/thread_ranks.h"

namespace fathom::apps {
namespace {

// Rank 0's part, which is as large as any.
int64_t weight_bytes(const config::ModelConfig& config, const model::ModelOptions& options,
                     const ops::Backend& backend, const comm::RankContext& rank) {
  return model::Model::create(config, options, backend, rank)->weight_bytes();
}

struct OneRank {
  explicit OneRank(const runner::RankSizes& sizes)
      : tp("tp", sizes.tp), dp("dp", sizes.dp), ep("ep", sizes.ep), sum_parts(sizes.sum_parts) {}
  comm::RankContext context() {
    return {.tp = &tp.of(0), .dp = &dp.of(0), .ep = &ep.of(0), .sum_parts = sum_parts};
  }

  // Nobody meets: a place in the groups is all that a part needs.
  comm::ThreadRanks tp, dp, ep;
  int sum_parts;
};

}  // namespace

int64_t RankListing::cache_tokens(int64_t device_bytes) const {
  const MemoryPlace device{
      .name = "a rank's device", .bytes = device_bytes, .cache_share = kGpuCacheShare};
  return fit_in(device, {.weight_bytes = weight_bytes,
                         .step_bytes = kGpuStepBytes,
                         .kv_bytes_per_token = kv_bytes_per_token})
      .cache_tokens;
}

int64_t rank_weight_bytes(const config::ModelConfig& config, const model::ModelOptions& options,
                          const ops::Backend& address_only, const runner::RankSizes& sizes) {
  return weight_bytes(config, options, address_only, OneRank(sizes).context());
}

RankListing list_ranks(const config::ModelConfig& config, const model::ModelOptions& options,
                       const ops::Backend& address_only, const runner::RankSizes& sizes) {
  OneRank place(sizes);
  const comm::RankContext rank = place.context();
  RankListing listing{.sizes = sizes};
  listing.weight_bytes = weight_bytes(config, options, address_only, rank);
  model::ModelOptions with_drafts = options;
  with_drafts.load_mtp = true;
  listing.weight_bytes_with_drafts = weight_bytes(config, with_drafts, address_only, rank);
  const auto model = model::Model::create(config, options, address_only, rank);
  for (const model::KvGroupSpec& group : model->kv_groups())
    listing.kv_bytes_per_token += group.block_bytes() / group.block_tokens;
  return listing;
}

std::string rank_text(const RankListing& listing) {
  std::string text = format_bytes(listing.weight_bytes) + " of weights";
  if (listing.weight_bytes_with_drafts > listing.weight_bytes)
    text += " (" + format_bytes(listing.weight_bytes_with_drafts) + " with the draft layer)";
  return text + ", " + std::to_string(listing.kv_bytes_per_token) +
         " bytes of KV cache per token, on each of " + std::to_string(listing.sizes.count()) +
         " ranks (" + (listing.sizes.ep > 1 ? "whole experts" : "parts of every expert") +
         (listing.sizes.dp > 1 ? ", " + std::to_string(listing.sizes.dp) + " lanes" : "") + ")";
}

json::Value rank_json(const RankListing& listing, std::optional<int64_t> device_bytes) {
  json::Value value = {{"tp_size", listing.sizes.count()},
                       {"dp_size", listing.sizes.dp},
                       {"ep_size", listing.sizes.ep},
                       {"weight_bytes", listing.weight_bytes},
                       {"weight_bytes_with_draft_layer", listing.weight_bytes_with_drafts},
                       {"kv_bytes_per_token", listing.kv_bytes_per_token}};
  if (!device_bytes) return value;
  value["device_bytes"] = *device_bytes;
  value["step_bytes_estimated"] = kGpuStepBytes;
  value["cache_tokens"] = listing.cache_tokens(*device_bytes);
  value["cache_tokens_of_all"] = listing.sizes.dp * listing.cache_tokens(*device_bytes);
  return value;
}

}  // namespace fathom::apps
