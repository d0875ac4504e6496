#include "apps/operator_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/reference/reference_backend.h"
#include "ops/mla_decode.h"
#include "tests/source_tree.h"

namespace fathom::apps {
namespace {

// Has all decodes of one token. The listing runs nothing.
class SingleDecoder : public ops::MlaDecoder {
 public:
  bool takes(const ops::MlaDecodeArgs& args, const ops::Stream&) const override {
    return args.kv_len.dim(0) == 1;
  }
  void run(const ops::MlaDecodeArgs&, ops::Stream&) const override { ADD_FAILURE(); }
  ops::LongAttention limit(const ops::Backend&) const override { return {}; }
};

std::string demo_listing() {
  const config::ModelConfig config =
      value_or_throw(config::load_model_config(source_path("models/demo")));
  return operators_text(list_operators(config, {}, cpu::reference_backend()));
}

TEST(OperatorListing, a_single_decode_is_listed_where_it_runs_other_operators) {
  EXPECT_THAT(demo_listing(), testing::Not(testing::HasSubstr("decode of 1 sequence")));
  const SingleDecoder decoder;
  ops::set_mla_decoder(&decoder);
  const std::string listing = demo_listing();
  ops::set_mla_decoder(nullptr);
  const size_t single = listing.find("decode of 1 sequence");
  ASSERT_NE(single, std::string::npos) << listing;
  EXPECT_GT(listing.find("mla_decode"), single);
  EXPECT_LT(listing.find("mla_absorbed"), single);
}

}  // namespace
}  // namespace fathom::apps
