// What ranks of published models hold, held to figures that were worked out apart from this program's listing.

#include "apps/engine/rank_listing.h"

#include <gtest/gtest.h>

#include "apps/engine/address_only.h"
#include "base/startup_error.h"
#include "cpu/fast/fast_backend.h"
#include "tests/source_tree.h"

namespace fathom::apps {
namespace {

constexpr double kGigabyte = 1e9;
constexpr int64_t kH100 = 85'500'000'000, kH200 = 150'800'000'000;

RankListing listing_of(const std::string& model, const runner::RankSizes& sizes,
                       tensor::DType kv_cache = tensor::DType::kBf16) {
  const auto config =
      value_or_throw(config::load_model_config(source_path("models/configs/" + model)));
  return list_ranks(config, {.kv_cache_dtype = kv_cache, .load_mtp = false},
                    address_only(cpu::fast_backend()), sizes);
}

struct Held {
  const char* model;
  runner::RankSizes sizes;
  double weights_gb, with_drafts_gb;
};

TEST(RankListing, counts_the_weights_of_published_models) {
  const Held cases[] = {{"deepseek-v3", {.tp = 8}, 85.4, 87.1},
                        {"deepseek-v3", {.tp = 8, .ep = 8}, 85.4, 87.1},
                        {"deepseek-v3", {.tp = 16}, 43.3, 44.2},
                        {"deepseek-v3", {.tp = 16, .ep = 16}, 43.3, 44.2},
                        {"kimi-k2", {.tp = 8}, 129.9, 129.9},
                        {"deepseek-v3", {.dp = 8, .ep = 8}, 99.6, 101.5},
                        {"deepseek-v3", {.tp = 2, .dp = 4, .ep = 8}, 91.5, 93.2},
                        {"deepseek-v3", {.tp = 8, .dp = 2, .ep = 16}, 44.3, 45.2},
                        {"deepseek-v3", {.dp = 16, .ep = 16}, 58.5, 59.6}};
  for (const Held& held : cases) {
    const RankListing listing = listing_of(held.model, held.sizes);
    EXPECT_NEAR(static_cast<double>(listing.weight_bytes) / kGigabyte, held.weights_gb, 0.06)
        << held.model << " tp " << held.sizes.tp << " ep " << held.sizes.ep;
    EXPECT_NEAR(static_cast<double>(listing.weight_bytes_with_drafts) / kGigabyte,
                held.with_drafts_gb, 0.06)
        << held.model << " tp " << held.sizes.tp;
  }
}

TEST(RankListing, says_how_many_tokens_fit) {
  const RankListing v3 = listing_of("deepseek-v3", {.tp = 8});
  EXPECT_EQ(v3.kv_bytes_per_token, 61 * 1152);
  EXPECT_NEAR(static_cast<double>(v3.cache_tokens(kH200)), 786e3, 4e3);
  EXPECT_EQ(v3.cache_tokens(kH100), 0);
  EXPECT_NEAR(static_cast<double>(listing_of("deepseek-v3", {.tp = 16}).cache_tokens(kH100)), 490e3,
              4e3);
  const RankListing fp8 = listing_of("deepseek-v3", {.tp = 8}, tensor::DType::kF8E4M3);
  EXPECT_EQ(fp8.kv_bytes_per_token, 61 * 656);
  EXPECT_NEAR(static_cast<double>(fp8.cache_tokens(kH200)), 1.38e6, 1e4);
}

// Of lanes each has others: the heads whole in a rank or in two, FFNs and experts over all.
TEST(RankListing, says_how_many_tokens_the_lanes_hold) {
  const auto tokens_of = [](const runner::RankSizes& sizes, int64_t device_bytes) {
    return static_cast<double>(listing_of("deepseek-v3", sizes).cache_tokens(device_bytes));
  };
  EXPECT_NEAR(tokens_of({.tp = 2, .dp = 4, .ep = 8}, kH200), 708e3, 4e3);
  EXPECT_NEAR(tokens_of({.tp = 8, .dp = 2, .ep = 16}, kH100), 477e3, 4e3);
  // Between a head in each rank with every FFN whole, and one cut over all ranks: 4.39 and 4.89 million.
  const double all = 8 * tokens_of({.dp = 8, .ep = 8}, kH200);
  EXPECT_GT(all, 4.5e6);
  EXPECT_LT(all, 4.89e6);
}

// Parts get smaller with every doubling, but never by half: what is not cut each rank has whole.
TEST(RankListing, divides_every_published_model_among_2_to_16_ranks) {
  for (const char* model : {"deepseek-v3", "deepseek-v2", "deepseek-v2-lite", "kimi-k2"})
    for (const bool by_experts : {false, true}) {
      int64_t before = listing_of(model, {}).weight_bytes;
      for (const int size : {2, 4, 8, 16}) {
        const int64_t bytes =
            listing_of(model, {.tp = size, .ep = by_experts ? size : 1}).weight_bytes;
        EXPECT_LT(bytes, before) << model << " " << size;
        EXPECT_GT(2 * bytes, before) << model << " " << size;
        before = bytes;
      }
    }
}

// A lane's ranks hold less the more of them there are, and with lanes of one all attention is in each.
TEST(RankListing, divides_every_published_model_among_lanes) {
  for (const char* model : {"deepseek-v3", "deepseek-v2", "deepseek-v2-lite", "kimi-k2"})
    for (const int size : {2, 4, 8, 16}) {
      int64_t before = 0;
      for (int dp = 1; dp <= size; dp *= 2) {
        const int64_t bytes =
            listing_of(model, {.tp = size / dp, .dp = dp, .ep = size}).weight_bytes;
        EXPECT_GT(bytes, before) << model << " " << size << " ranks in " << dp << " lanes";
        before = bytes;
      }
      EXPECT_LT(before, listing_of(model, {}).weight_bytes);
    }
}

TEST(RankListing, refuses_what_ranks_cannot_share) {
  EXPECT_THROW(listing_of("deepseek-v3", {.tp = 32}), StartupError);
  EXPECT_THROW(listing_of("deepseek-v3", {.tp = 3}), StartupError);
}

}  // namespace
}  // namespace fathom::apps
