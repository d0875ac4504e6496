#pragma once
// One block of attention: scores of up to kQueryBlock queries (or heads) against up to kKeyBlock keys, the
// running softmax, and the weighted sum of values (Milakov & Gimelshein 2018; FlashAttention, Dao 2022).
//
// The weighted sum adds the keys in order to every element, so it depends neither on the tile a query is
// in nor on keys that it does not see: those weigh exactly zero.

#include <cstdint>

#include "cpu/isa/kernel/dot_tile.h"
#include "cpu/isa/kernel/rows.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {

template <class V>
struct Attention {
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int kRows = V::kMaxRows > 4 ? 4 : 2;
  static constexpr int kVectors = 4;

  // Products of rows with keys, not yet scaled. kTileKeys is 4 or 1.
  template <int kTileRows, int kTileKeys>
  static void score_tile(const AttentionBlock& b, int64_t row, int64_t key) {
    const float* q[kTileRows];
    const float* k[kTileKeys];
    for (int i = 0; i < kTileRows; ++i) q[i] = b.q[row + i];
    for (int j = 0; j < kTileKeys; ++j) k[j] = b.key[key + j];
    DotTile<V, kTileRows, kTileKeys> tile;
    tile.clear();
    tile.add(q, k, 0, b.key_dim, 0);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      float* const out = b.scores + (row + i) * kKeyBlock + key;
      if constexpr (kTileKeys == 4) {
        V::reduce_add4(tile.acc[i], out);
      } else {
        out[0] = tile.acc[i][0].reduce_add();
      }
    }
  }

  template <int kTileRows>
  static void score_rows(const AttentionBlock& b, int64_t row) {
    int64_t key = 0;
    for (; key + 4 <= b.num_keys; key += 4) score_tile<kTileRows, 4>(b, row, key);
    for (; key < b.num_keys; ++key) score_tile<kTileRows, 1>(b, row, key);
  }

  static uint64_t visible_keys(const AttentionBlock& b, int64_t row) {
    const uint64_t present = b.num_keys == 64 ? ~uint64_t{0} : (uint64_t{1} << b.num_keys) - 1;
    return b.visible == nullptr ? present : present & b.visible[row];
  }

  // Turns a row of scores into weights relative to the new maximum and returns the factor of the old sums.
  static float update_row(const AttentionBlock& b, int64_t row) {
    float* const scores = b.scores + row * kKeyBlock;
    const uint64_t visible = visible_keys(b, row);
    if (visible == 0) {
      for (int64_t j = 0; j < kKeyBlock; j += kLanes) V::zero().store(scores + j);
      return 1.0f;
    }
    const V hidden = V::set1(-__builtin_inff());
    V largest = V::set1(b.state.max[row]);
    for (int64_t j = 0; j < kKeyBlock; j += kLanes) {
      const V scaled = V::mul(V::load(scores + j), V::set1(b.scale));
      const V s = V::select(visible >> j, scaled, hidden);
      s.store(scores + j);
      largest = V::max(largest, s);
    }
    const float max = largest.reduce_max();
    V sum = V::zero();
    for (int64_t j = 0; j < kKeyBlock; j += kLanes) {
      const V p = exp_of(V::sub(V::load(scores + j), V::set1(max)));
      p.store(scores + j);
      sum = V::add(sum, p);
    }
    const float factor = exp_of_one<V>(b.state.max[row] - max);
    b.state.max[row] = max;
    b.state.sum[row] = b.state.sum[row] * factor + sum.reduce_add();
    return factor;
  }

  // kTileRows rows, kTileVectors vectors of values from element d: acc = acc * factor + weights * values,
  // over the first num_keys keys.
  template <int kTileRows, int kTileVectors>
  static void value_tile(const AttentionBlock& b, const float* factors, int64_t row, int64_t d,
                         int64_t num_keys) {
    V acc[kTileRows][kTileVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v)
        acc[i][v] =
            V::mul(V::load(b.state.acc[row + i] + d + v * kLanes), V::set1(factors[row + i]));
    const float* const weights = b.scores + row * kKeyBlock;
    for (int64_t key = 0; key < num_keys; ++key) {
      const float* const value = b.value[key] + d;
      V values[kTileVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) values[v] = V::load(value + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows; ++i) {
        const V p = V::set1(weights[i * kKeyBlock + key]);
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) acc[i][v] = V::fma(p, values[v], acc[i][v]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) acc[i][v].store(b.state.acc[row + i] + d + v * kLanes);
  }

  // The last n < kLanes values of one row.
  static void value_tail(const AttentionBlock& b, const float* factors, int64_t row, int64_t d,
                         int64_t num_keys) {
    const int64_t n = b.value_dim - d;
    float* const out = b.state.acc[row] + d;
    V acc = V::mul(V::load_partial(out, n), V::set1(factors[row]));
    for (int64_t key = 0; key < num_keys; ++key)
      acc = V::fma(V::set1(b.scores[row * kKeyBlock + key]), V::load_partial(b.value[key] + d, n),
                   acc);
    acc.store_partial(out, n);
  }

  // Weighted values of kTileRows rows. The keys that all of them see from the first on are added tile by
  // tile; what else a row sees is added to it alone, and what it does not see is never touched: a hidden
  // NaN times zero would still be NaN.
  template <int kTileRows>
  static void value_rows(const AttentionBlock& b, const float* factors, int64_t row) {
    uint64_t common = ~uint64_t{0};
    for (int i = 0; i < kTileRows; ++i) common &= visible_keys(b, row + i);
    const int64_t num = common == ~uint64_t{0} ? kKeyBlock : __builtin_ctzll(~common);
    int64_t d = 0;
    for (; d + kVectors * kLanes <= b.value_dim; d += kVectors * kLanes)
      value_tile<kTileRows, kVectors>(b, factors, row, d, num);
    for (; d + kLanes <= b.value_dim; d += kLanes)
      value_tile<kTileRows, 1>(b, factors, row, d, num);
    if (d < b.value_dim)
      for (int i = 0; i < kTileRows; ++i) value_tail(b, factors, row + i, d, num);
    if (num == kKeyBlock) return;
    for (int64_t i = row; i < row + kTileRows; ++i)
      for (uint64_t rest = visible_keys(b, i) >> num << num; rest != 0; rest &= rest - 1) {
        const int64_t key = __builtin_ctzll(rest);
        Rows<V>::add_scaled(b.value[key], b.scores[i * kKeyBlock + key], false, b.value_dim,
                            b.state.acc[i]);
      }
  }

  static void run(const AttentionBlock& b) {
    float factors[kQueryBlock];
    int64_t row = 0;
    for (; row + kRows <= b.num_queries; row += kRows) score_rows<kRows>(b, row);
    for (; row < b.num_queries; ++row) score_rows<1>(b, row);
    for (row = 0; row < b.num_queries; ++row) factors[row] = update_row(b, row);
    for (row = 0; row + kRows <= b.num_queries; row += kRows) value_rows<kRows>(b, factors, row);
    for (; row < b.num_queries; ++row) value_rows<1>(b, factors, row);
  }

  static void merge(const SoftmaxState& into, const SoftmaxState& from, int64_t num_rows,
                    int64_t value_dim) {
    for (int64_t r = 0; r < num_rows; ++r) {
      // Nothing was visible to this row in the part.
      if (from.max[r] == -__builtin_inff() && from.sum[r] == 0.0f) continue;
      const float max = into.max[r] > from.max[r] ? into.max[r] : from.max[r];
      const float keep = exp_of_one<V>(into.max[r] - max), gain = exp_of_one<V>(from.max[r] - max);
      into.max[r] = max;
      into.sum[r] = into.sum[r] * keep + from.sum[r] * gain;
      float* const acc = into.acc[r];
      const float* const part = from.acc[r];
      Rows<V>::each(value_dim, [&](int64_t k, int64_t n) {
        const V scaled = V::mul(Rows<V>::load(acc + k, n), V::set1(keep));
        Rows<V>::store(V::fma(Rows<V>::load(part + k, n), V::set1(gain), scaled), acc + k, n);
      });
    }
  }
};

}  // namespace fathom::cpu
