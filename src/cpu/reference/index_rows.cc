#include "cpu/reference/index_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "cpu/reference/vector_math.h"

namespace fathom::cpu::reference {
namespace {

using tensor::DType, tensor::F8E4M3;

// Pairs (j, j + dim/2) of a row, cosines and sines as ops/rope.h has them.
void rotate_halves(float* x, const float* table, int64_t dim) {
  const int64_t pairs = dim / 2;
  for (int64_t j = 0; j < pairs; ++j) {
    const float a = x[j], b = x[j + pairs];
    x[j] = a * table[j] - b * table[pairs + j];
    x[j + pairs] = b * table[j] + a * table[pairs + j];
  }
}

// Sylvester's matrix of a power of two, times dim^-0.5.
void hadamard(float* x, int64_t dim) {
  for (int64_t half = 1; half < dim; half *= 2)
    for (int64_t begin = 0; begin < dim; begin += 2 * half)
      for (int64_t i = begin; i < begin + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const float factor = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int64_t i = 0; i < dim; ++i) x[i] *= factor;
}

// Returns the scale.
float quantize(const float* x, int64_t dim, F8E4M3* q) {
  float amax = 0.0f;
  for (int64_t i = 0; i < dim; ++i) amax = std::max(amax, std::fabs(x[i]));  // NaN does not count
  const float scale = ops::index_scale(amax);
  for (int64_t i = 0; i < dim; ++i) q[i] = tensor::from_float<F8E4M3>(x[i] / scale);
  return scale;
}

// Mean 0 and variance 1, before weight and bias.
void standardise(const float* x, float eps, int64_t dim, float* out) {
  const float mean = sum(x, dim) / static_cast<float>(dim);
  for (int64_t i = 0; i < dim; ++i) out[i] = x[i] - mean;
  const float factor = inverse_rms(out, dim, eps);
  for (int64_t i = 0; i < dim; ++i) out[i] *= factor;
}

}  // namespace

int64_t QueryPlace::num_visible() const {
  if (kv_len == 0) return 0;
  if (visible.tree_mask == nullptr) return end();
  int64_t count = visible.first_query_row;
  for (int64_t row = count; row < kv_len; ++row) count += visible.sees(row) ? 1 : 0;
  return count;
}

QueryPlace place_of(const ops::IndexQueries& queries, int64_t token, int64_t max_rows) {
  const int64_t num_sequences = queries.kv_len.dim(0);
  const int32_t* const starts = queries.query_start.as<int32_t>();
  const int64_t sequence = std::upper_bound(starts, starts + num_sequences + 1, token) - starts - 1;
  FATHOM_CHECK(sequence >= 0 && sequence < num_sequences,
               "query token " << token << " belongs to none of " << num_sequences << " sequences");
  const int64_t begin = starts[sequence], end = starts[sequence + 1];
  const int64_t kv_len = *queries.kv_len.row<int32_t>(sequence);
  FATHOM_CHECK(kv_len == 0 || kv_len >= end - begin,
               "kv_len[" << sequence << "] is " << kv_len << " with " << end - begin << " queries");
  FATHOM_CHECK(kv_len <= max_rows, "kv_len[" << sequence << "] is " << kv_len
                                             << ", its block table has room for " << max_rows);
  const bool is_causal = queries.tree_mask.is_null() || end - begin > ops::kMaxTreeTokens;
  return {.sequence = sequence,
          .kv_len = kv_len,
          .visible = {.first_query_row = kv_len - (end - begin),
                      .query = token - begin,
                      .tree_mask = is_causal ? nullptr : queries.tree_mask.row<uint64_t>(token)}};
}

void append_key(const ops::IndexAppendArgs& args, int64_t token, float* scratch) {
  const int64_t kv_row = *args.kv_rows.row<int64_t>(token);
  if (kv_row == -1) return;  // padding
  const int64_t dim = args.k.dim(1), block_tokens = args.cache.block_tokens();
  const int64_t num_rows = args.cache.num_blocks() * block_tokens;
  FATHOM_CHECK(kv_row >= 0 && kv_row < num_rows,
               "kv_rows[" << token << "] is " << kv_row << " of " << num_rows);
  const float* const weight =
      as_floats(args.weight.data(), args.weight.dtype(), dim, scratch + dim);
  const float* const bias = args.bias.as<float>();
  standardise(args.k.row<float>(token), args.eps, dim, scratch);
  for (int64_t i = 0; i < dim; ++i) scratch[i] = scratch[i] * weight[i] + bias[i];
  rotate_halves(scratch, args.table.row<float>(token), args.table.dim(1));
  const int64_t block = kv_row / block_tokens, offset = kv_row % block_tokens;
  if (args.cache.scales.is_null()) {
    std::copy_n(scratch, dim, args.cache.values.row<float>(block, offset));
    return;
  }
  hadamard(scratch, dim);
  args.cache.scales.row<float>(block)[offset] =
      quantize(scratch, dim, args.cache.values.row<F8E4M3>(block, offset));
}

void prepare_query(const ops::IndexQueryArgs& args, int64_t token, float* scratch) {
  const int64_t heads = args.q.dim(1), dim = args.q.dim(2);
  const bool is_f8 = args.out.dtype() == DType::kF8E4M3;
  const float factor = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim));
  for (int64_t head = 0; head < heads; ++head) {
    std::copy_n(args.q.row<float>(token, head), dim, scratch);
    rotate_halves(scratch, args.table.row<float>(token), args.table.dim(1));
    float weight = args.w.row<float>(token)[head] * factor;
    if (is_f8) {
      hadamard(scratch, dim);
      weight *= quantize(scratch, dim, args.out.row<F8E4M3>(token, head));
    } else {
      std::copy_n(scratch, dim, args.out.row<float>(token, head));
    }
    args.weights.row<float>(token)[head] = weight;
  }
}

uint32_t score_key(float score) {
  if (std::isnan(score)) return std::numeric_limits<uint32_t>::max();
  const auto bits = std::bit_cast<uint32_t>(score == 0.0f ? 0.0f : score);
  constexpr uint32_t kSign = 0x80000000u;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

namespace {

// The key of the topk-th best of more than topk rows, and how many rows of just this key are kept.
struct Threshold {
  uint32_t key = 0;
  int64_t num_equal = 0;
};

// Eleven, eleven and ten bits from the top: counts of the keys that agree in the bits above.
Threshold find_threshold(const float* scores, const QueryPlace& place, int64_t topk,
                         int32_t* bins) {
  Threshold found{.num_equal = topk};
  for (const int shift : {21, 10, 0}) {
    const int width = shift == 0 ? 10 : 11;
    std::fill_n(bins, kRowBins, 0);
    const uint64_t above = uint64_t{found.key} >> (shift + width);
    for (int64_t row = 0; row < place.end(); ++row) {
      if (!place.visible.sees(row)) continue;
      const uint32_t key = score_key(scores[row]);
      if (uint64_t{key} >> (shift + width) == above)
        ++bins[(key >> shift) & ((uint32_t{1} << width) - 1)];
    }
    uint32_t bin = (uint32_t{1} << width) - 1;
    while (bins[bin] < found.num_equal) found.num_equal -= bins[bin--];
    found.key |= bin << shift;
  }
  return found;
}

}  // namespace

void choose_rows(const ops::TopRowsArgs& args, int64_t token, int32_t* bins) {
  const int64_t topk = args.topk();
  const QueryPlace place =
      place_of(args.queries, token, args.queries.block_tables.dim(1) * args.block_tokens);
  const int64_t num_visible = place.num_visible();
  int32_t* const rows = args.rows.row<int32_t>(token);
  uint32_t* const kept =
      args.kept.is_null() ? nullptr : reinterpret_cast<uint32_t*>(args.kept.row<int32_t>(token));
  if (kept != nullptr) std::fill_n(kept, ops::kept_words(place.end()), 0u);
  const int32_t* const table = args.queries.block_tables.row<int32_t>(place.sequence);
  const bool keeps_all = num_visible <= topk;
  const float* const scores =
      keeps_all ? nullptr : args.scores.row<float>(token - args.queries.token_begin);
  Threshold threshold;
  if (!keeps_all) threshold = find_threshold(scores, place, topk, bins);
  int64_t count = 0;
  for (int64_t row = 0; row < place.end(); ++row) {
    if (!place.visible.sees(row)) continue;
    if (!keeps_all) {
      const uint32_t key = score_key(scores[row]);
      if (key < threshold.key || (key == threshold.key && threshold.num_equal-- <= 0)) continue;
    }
    if (kept != nullptr) {
      kept[ops::kept_word(row)] |= ops::kept_bit(row);
      continue;
    }
    rows[count++] =
        static_cast<int32_t>(args.of_sequence ? row
                                              : table[row / args.block_tokens] * args.block_tokens +
                                                    row % args.block_tokens);
  }
  if (kept != nullptr) return;
  std::fill(rows + count, rows + topk, -1);
  *args.counts.row<int32_t>(token) = static_cast<int32_t>(count);
}

}  // namespace fathom::cpu::reference
