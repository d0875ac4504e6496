// Absorbed attention with a model's sizes as constants: NVRTC compiles it where no GPU is.

#include "cuda/attention/absorbed_source.h"

#include <gtest/gtest.h>

#include "jit/compiler.h"

namespace fathom::cuda {
namespace {

using tensor::DType;

TEST(AbsorbedSource, compiles_without_a_toolkit) {
  const auto compiler = jit::open_nvrtc("");
  if (!compiler) GTEST_SKIP() << compiler.error().message;
  for (const DType latent : {DType::kBf16, DType::kF8E4M3, DType::kF32}) {
    const AbsorbedSizes sizes{
        .format = ops::KvFormat::of(latent, 256, 32), .heads = 16, .block_tokens = 64};
    const jit::Source source = absorbed_source(sizes);
    const Result<std::string> code = (*compiler)->compile(source);
    ASSERT_TRUE(code) << absorbed_name(sizes) << ": " << code.error().message << source.text;
    EXPECT_TRUE(code->starts_with("\177ELF"));
    EXPECT_NE(code->find(source.entry), std::string::npos);
  }
  EXPECT_EQ(absorbed_name({.format = ops::KvFormat::of(DType::kF8E4M3, 256, 32)}),
            "mla_absorbed 256+32, f8_e4m3");
}

}  // namespace
}  // namespace fathom::cuda
