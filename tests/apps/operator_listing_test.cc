#include "apps/operator_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/reference/reference_backend.h"
#include "cpu/stream.h"
#include "ops/mla_decode.h"
#include "tests/source_tree.h"

namespace fathom::apps {
namespace {

std::string demo_listing(const ops::Backend& backend) {
  const config::ModelConfig config =
      value_or_throw(config::load_model_config(source_path("models/demo")));
  return operators_text(list_operators(config, {}, backend));
}

// Has all decodes of one token. The listing runs nothing.
const ops::Backend& backend_for_one() {
  static const ops::Backend backend = [] {
    ops::Backend table = cpu::reference_backend();
    table.mla_decode = {.run = [](const ops::MlaDecodeArgs&, ops::Stream&) { ADD_FAILURE(); },
                        .takes = [](const ops::MlaDecodeArgs& args,
                                    const ops::Stream&) { return args.kv_len.dim(0) == 1; }};
    table.make_stream = [](const ops::StreamConfig&) -> std::unique_ptr<ops::Stream> {
      return std::make_unique<cpu::CpuStream>(backend_for_one());
    };
    return table;
  }();
  return backend;
}

TEST(OperatorListing, a_single_decode_is_listed_where_it_runs_other_operators) {
  EXPECT_THAT(demo_listing(cpu::reference_backend()),
              testing::Not(testing::HasSubstr("decode of 1 sequence")));
  const std::string listing = demo_listing(backend_for_one());
  const size_t single = listing.find("decode of 1 sequence");
  ASSERT_NE(single, std::string::npos) << listing;
  EXPECT_GT(listing.find("mla_decode"), single);
  EXPECT_LT(listing.find("mla_absorbed"), single);
}

}  // namespace
}  // namespace fathom::apps
