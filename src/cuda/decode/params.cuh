#pragma once
// Parameters of mla_decode's kernel. Internal to cuda/decode/.

#include <cstdint>

#include "cuda/cache/append_row.cuh"

namespace fathom::cuda::decode {

inline constexpr int kCluster = 8;
inline constexpr int kLatent = 512, kRope = 64, kDim = kLatent + kRope;
inline constexpr int kHead = 128, kQuery = kHead + kRope;
inline constexpr int kQueryIn = 1536, kQueryLines = kQueryIn / 128;
// Of mla_decode's calls: tokens, and rows that there is room for. Clusters of two heads have the short ones at once.
inline constexpr int kMostTokens = 4;
inline constexpr int kMostRows = 2048, kShortRows = 1024;
inline constexpr int kUkLines = kHead / 64, kUvLines = kLatent / 64;

// Compressed queries on their way through norm and q_b.
struct QueryProduct {
  const Bf16* q_a = nullptr;  // [tokens, 1536]; null: queries are given
  const void* q_norm = nullptr;
  const char* q_weight = nullptr;  // e4m3[heads * 192, 1536]
  const float* q_scale = nullptr;
  int64_t q_a_stride = 0;
  float q_eps = 0;
  bool q_norm_is_f32 = false;
};
// So many warps of one block divide the lines of q_b: where its product does otherwise the call is not taken.
inline constexpr int kQueryParts = 8;

struct DecodeParams : QueryProduct {
  const Bf16* q = nullptr;  // [tokens, heads * 192]
  int64_t q_stride = 0;
  const char* w_uk = nullptr;            // bf16[heads, 512, 128]
  const char* w_uv = nullptr;            // bf16[heads, 128, 512]
  int64_t w_uk_head = 0, w_uv_head = 0;  // bytes
  AppendParams append{};
  const int32_t* kv_len = nullptr;
  const int32_t* block_tables = nullptr;
  int block_tokens = 0, heads = 0;
  float scale = 0;
  Bf16* out = nullptr;
  F8E4M3* out_f8 = nullptr;
  float* out_scale = nullptr;
};

inline constexpr int kMostQueryTokens = 8;

struct QueryParams : QueryProduct {
  Bf16* q = nullptr;  // [tokens, heads * 192], whose rope parts get rotated
  int64_t q_stride = 0;
  const char* w_uk = nullptr;  // bf16[heads, 512, 128]
  int64_t w_uk_head = 0;       // bytes
  Bf16* q_latent = nullptr;    // [tokens, heads * 512]
  AppendParams append{};
  int tokens = 0, heads = 0;
  bool cache_is_f8 = false;
  bool settled = false;  // MlaQueryArgs::settled: all of this may be read before the wait
  bool lets_next_first = false;
};

}  // namespace fathom::cuda::decode
