// Chains as texts, and that NVRTC compiles them where no GPU is: with the headers that come with the program alone.

#include "cuda/fusion/chain_source.h"

#include <gtest/gtest.h>

#include "cuda/jit/headers.h"
#include "jit/compiler.h"

namespace fathom::cuda {
namespace {

using tensor::DType;
using Kind = LinkShape::Kind;

LinkShape norm(int64_t width, bool quantised = true) {
  return {.kind = Kind::kNorm, .has_out = !quantised, .is_quantised = quantised, .width = width};
}
LinkShape append(DType latent, int64_t width, int64_t rope) {
  return {.kind = Kind::kAppend, .latent = latent, .width = width, .other = rope};
}
LinkShape rope(int64_t heads, int64_t width) {
  return {.kind = Kind::kRope, .width = width, .other = heads};
}

TEST(ChainSource, has_blocks_for_the_operator_of_the_most_threads) {
  // A norm has as many threads as vectors of 8 up to 4096, then half as many.
  EXPECT_EQ(chain_block({norm(1536), append(DType::kBf16, 512, 64)}), 192u);
  EXPECT_EQ(chain_block({append(DType::kBf16, 512, 64), rope(16, 64)}), 128u);
  EXPECT_EQ(chain_block({norm(1536), norm(1500)}), 192u);
  EXPECT_EQ(chain_block({norm(7168), rope(16, 64)}), 448u);
  EXPECT_EQ(chain_block({norm(1536), norm(512)}), 192u);
  EXPECT_EQ(chain_block({norm(128), append(DType::kBf16, 512, 64)}), 128u);
  EXPECT_EQ(chain_block({norm(8200), rope(16, 64)}), 0u);
  EXPECT_EQ(chain_block({norm(1536), rope(16, 12)}), 0u);
  EXPECT_EQ(chain_block(ChainShape(9, rope(16, 64))), 0u);
}

TEST(ChainSource, is_named_by_its_operators) {
  EXPECT_EQ(chain_name({norm(1536), append(DType::kBf16, 512, 64)}),
            "rms_norm_quantize 1536, kv_append 512+64");
  EXPECT_EQ(chain_name({norm(1536, false), rope(16, 64)}), "rms_norm 1536, rope 16x64");
}

TEST(ChainSource, compiles_without_a_toolkit) {
  const auto compiler = jit::open_nvrtc("");
  if (!compiler) GTEST_SKIP() << compiler.error().message;
  LinkShape with_residual = norm(1000, false);
  with_residual.has_residual = true;
  with_residual.weight = DType::kF32;
  const ChainShape shapes[] = {
      {norm(1536), append(DType::kBf16, 512, 64)},
      {norm(1536, false), append(DType::kF8E4M3, 512, 64)},
      {append(DType::kF32, 600, 32), rope(16, 64)},
      {with_residual, append(DType::kF8E4M3, 600, 64), rope(8, 32)},
  };
  for (const ChainShape& shape : shapes) {
    const jit::Source source = chain_source(shape);
    const Result<std::string> code = (*compiler)->compile(source);
    ASSERT_TRUE(code) << chain_name(shape) << ": " << code.error().message << source.text;
    EXPECT_TRUE(code->starts_with("\177ELF"));
    EXPECT_NE(code->find(source.entry), std::string::npos);
  }
}

TEST(ChainSource, compilers_words_are_told) {
  const auto compiler = jit::open_nvrtc("");
  if (!compiler) GTEST_SKIP() << compiler.error().message;
  const Result<std::string> code =
      (*compiler)->compile({.text = "not a kernel", .options = device_options(), .entry = "x"});
  ASSERT_FALSE(code);
  EXPECT_TRUE(code.error().message.starts_with("NVRTC ")) << code.error().message;
  EXPECT_NE(code.error().message.find("kernel.cu(1): error"), std::string::npos)
      << code.error().message;
}

TEST(ChainSource, missing_library_is_named) {
  const auto compiler = jit::open_nvrtc("/nowhere/libnvrtc.so");
  ASSERT_FALSE(compiler);
  EXPECT_EQ(compiler.error().message, "NVRTC cannot be opened, tried /nowhere/libnvrtc.so");
}

}  // namespace
}  // namespace fathom::cuda
