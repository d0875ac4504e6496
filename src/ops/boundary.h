#pragma once
// Shared by the operator functions: contiguity checks and the call through the stream's table.
//
//   expect_contiguous("q", args.q);
//   dispatch("rms_norm", act, stream.backend().rms_norm, args, stream);
//
// Internal to ops/. Pure functions, thread-safe.

#include <string_view>
#include <type_traits>

#include "ops/backend.h"
#include "ops/chain.h"
#include "tensor/expect.h"
#include "tensor/tensor.h"

namespace fathom::ops {

// A null tensor passes.
inline void expect_contiguous(std::string_view name, const tensor::Tensor& tensor) {
  FATHOM_CHECK(tensor.is_null() || tensor.is_contiguous(),
               name << " is a strided " << tensor.describe() << ", must be contiguous");
}

// A call as a link of a chain (ops/chain.h), where it may be one.
template <class Args>
concept IsLink = std::is_same_v<Args, RmsNormArgs> || std::is_constructible_v<ChainLink, Args>;
inline ChainLink as_link(const RmsNormArgs& args) {
  return RmsNormQuantizeArgs{.norm = args, .quantised = {}};
}
inline ChainLink as_link(const auto& args) { return args; }

// The only way to an operator of a backend: what it needs is there, or counted and nothing else, before it runs.
// dtype: the one that Backend::supports was asked for.
template <class Args>
void dispatch(std::string_view op, tensor::DType dtype, const Operator<Args>& entry,
              const Args& args, Stream& stream) {
  FATHOM_CHECK(entry.run != nullptr, stream.backend().name << " has no operator " << op);
  FATHOM_CHECK(entry.has(args, stream),
               stream.backend().name << " makes this " << op << " of its parts");
  ChainScope* const scope = ChainScope::current();
  if (scope != nullptr && !IsLink<Args>) scope->end_chain();
  const int64_t bytes =
      entry.scratch_bytes == nullptr ? Stream::kNoScratch : entry.scratch_bytes(args, stream);
  const bool runs = stream.begin_operator({.op = op, .dtype = dtype}, bytes);
  if constexpr (IsLink<Args>) {
    if (scope != nullptr) return scope->add(as_link(args));
  }
  if (runs) entry.run(args, stream);
}

}  // namespace fathom::ops
