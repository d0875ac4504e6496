#pragma once
// Cache rows on the host: values to bytes of a format and back, by the rule of ops/kv_format.h told once more
// in float64.
//
//   const std::vector<uint8_t> bytes = encode_rows(values, format);   // values [..., latent_dim + rope_dim]
//   HostTensor stored = decode_rows(bytes, format);                   // [rows, latent_dim + rope_dim]

#include <cstdint>
#include <vector>

#include "ops/kv_format.h"
#include "tests/ref/host_tensor.h"

namespace fathom::ops_test {

inline constexpr tensor::DType kCacheTypes[] = {tensor::DType::kF32, tensor::DType::kBf16,
                                                tensor::DType::kF8E4M3};

std::vector<uint8_t> encode_rows(const ref::HostTensor& values, const ops::KvFormat& format);
ref::HostTensor decode_rows(const std::vector<uint8_t>& bytes, const ops::KvFormat& format);

}  // namespace fathom::ops_test
