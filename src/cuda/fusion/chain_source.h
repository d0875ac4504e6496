#pragma once
// The kernel of a chain (ops/chain.h) as a text for NVRTC: its widths are constants, and each operator of the chain is
// the code that its own kernel has.
//
//   const ChainShape shape = shape_of(chain);           // what a step's calls have in common
//   if (chain_block(shape) > 0) kernels.want(chain_name(shape), chain_source(shape));
//
// Grid: rows x operators. Thread-safe.

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jit/source.h"
#include "ops/chain.h"

namespace fathom::cuda {

// An operator but for its rows and addresses.
struct LinkShape {
  enum class Kind : uint8_t { kNorm, kRope, kAppend };
  Kind kind = Kind::kNorm;
  tensor::DType weight = tensor::DType::kBf16;                       // of a norm, append
  tensor::DType latent = tensor::DType::kBf16;                       // append
  bool has_residual = false, has_out = false, is_quantised = false;  // norm
  int64_t width = 0;  // of a norm, of heads, of the latent part
  int64_t other = 0;  // heads; width of the rope part

  auto operator<=>(const LinkShape&) const = default;
};
using ChainShape = std::vector<LinkShape>;

ChainShape shape_of(std::span<const ops::ChainLink> chain);
// Threads of a block that all of the operators can work with; 0: there is none.
unsigned chain_block(const ChainShape& shape);
// "rms_norm_quantize 1536, kv_append 512+64"
std::string chain_name(const ChainShape& shape);
// REQUIRES: chain_block(shape) > 0.
jit::Source chain_source(const ChainShape& shape);

}  // namespace fathom::cuda
