// On a GPU: absorbed attention compiled for a model's sizes has the bits of the kernel that takes any.

#include "cuda/jit/jit.h"
#include "jit/compiler.h"
#include "ops/mla.h"
#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

class CompiledAttentionTest : public OpsTest {
 protected:
  void SetUp() override {
    if (!backend().device_memory) GTEST_SKIP() << "attention is compiled for GPUs";
    const auto compiler = jit::open_nvrtc("");
    if (!compiler) GTEST_SKIP() << compiler.error().message;
    cuda::set_jit({.mode = jit::Mode::kWait, .library = "", .directory = "none"});
  }

  // Decodes of one, three and no tokens (padding), of which the second is a tree.
  std::vector<uint8_t> attend(const ops::KvFormat& format, int64_t heads, bool measures) {
    constexpr int64_t kTokens = 5, kSeqs = 3, kTableBlocks = 24, kTokensOfBlock = 16;
    ref::Random random(7);
    const DeviceTensor q_latent = upload(random.normal(act(), {kTokens, heads, format.latent_dim}));
    const DeviceTensor q_rope = upload(random.normal(act(), {kTokens, heads, format.rope_dim}));
    const DeviceTensor kv_a = upload(
        random.normal(act(), {kTableBlocks * kTokensOfBlock, format.latent_dim + format.rope_dim}));
    const DeviceTensor weight = upload(random.normal(DType::kBf16, {format.latent_dim}));
    const DeviceTensor table = upload(
        random.uniform(DType::kF32, {kTableBlocks * kTokensOfBlock, format.rope_dim}, -1, 1));
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < kTableBlocks * kTokensOfBlock; ++row) rows.push_back(row);
    const DeviceTensor kv_rows = upload({kTableBlocks * kTokensOfBlock}, rows);
    const DeviceTensor cache = empty(DType::kU8, {kTableBlocks, kTokensOfBlock, format.row_bytes});
    const ops::KvCache rows_of_cache{.rows = cache.view(), .format = format};
    ops::kv_append({.kv_a = kv_a.view(),
                    .weight = weight.view(),
                    .table = table.view(),
                    .kv_rows = kv_rows.view(),
                    .cache = rows_of_cache},
                   stream());
    std::vector<int32_t> blocks;
    for (int32_t i = 0; i < kSeqs * kTableBlocks; ++i) blocks.push_back(i * 5 % kTableBlocks);
    const DeviceTensor tables = upload({kSeqs, kTableBlocks}, blocks);
    const DeviceTensor starts = upload({kSeqs + 1}, std::vector<int32_t>{0, 1, 4, 5});
    const DeviceTensor lengths = upload({kSeqs}, std::vector<int32_t>{130, 300, 0});
    const DeviceTensor mask = upload({kTokens}, std::vector<uint64_t>{1, 1, 3, 5, 1});
    const DeviceTensor out = empty(act(), {kTokens, heads, format.latent_dim});
    const auto other = backend().make_stream({});
    if (measures) other->begin_measuring();
    stream().synchronize();
    ops::mla_absorbed({.q_latent = q_latent.view(),
                       .q_rope = q_rope.view(),
                       .cache = rows_of_cache,
                       .query_start = starts.view(),
                       .kv_len = lengths.view(),
                       .block_tables = tables.view(),
                       .tree_mask = mask.view(),
                       .plan = {},
                       .scale = 0.1f,
                       .out = out.view()},
                      *other);
    other->synchronize();
    return bytes(out.view());
  }
};
INSTANTIATE_TEST_SUITE_P(backends, CompiledAttentionTest, testing::ValuesIn(gpu_or_stand_in()),
                         backend_name);

TEST_P(CompiledAttentionTest, has_the_bits_of_the_kernel_for_any_sizes) {
  // With more heads in each case: nobody has wanted these sizes before.
  int64_t heads = 3;
  for (const DType cache : {DType::kBf16, DType::kF8E4M3, DType::kF32})
    for (const int64_t latent : {256, 69}) {
      const ops::KvFormat format = ops::KvFormat::of(cache, latent, 32);
      const std::vector<uint8_t> expected = attend(format, ++heads, false);
      attend(format, heads, true);
      cuda::settle_jit();
      const std::vector<jit::KernelState> states = cuda::jit_states();
      ASSERT_FALSE(states.empty());
      ASSERT_TRUE(states.back().state.starts_with("compiled in")) << states.back().state;
      EXPECT_EQ(attend(format, heads, false), expected)
          << states.back().name << ", " << heads << " heads";
    }
}

}  // namespace
}  // namespace fathom::ops_test
