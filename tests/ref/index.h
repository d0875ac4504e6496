#pragma once
// The indexer's operators (ops/index.h) in float64. FP8 values and their scales are rounded as the contract fixes them.
//
// Pure functions.

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/ref/host_tensor.h"

namespace fathom::ref {

// Values that stand for themselves, or f8 ones with a scale per row of the last axis.
struct IndexRows {
  HostTensor values, scale;
};

// Keys of k [tokens, dim]. f8: transformed and quantised.
IndexRows index_keys(const HostTensor& k, const HostTensor& weight, const HostTensor& bias,
                     double eps, const HostTensor& table, bool f8);
// Queries of q [tokens, heads, dim]; scale [tokens, heads].
IndexRows index_queries(const HostTensor& q, const HostTensor& table, bool f8);
// [tokens, heads]
HostTensor index_weights(const HostTensor& w, const IndexRows& queries, int64_t dim);
// Of one query token: q [heads, dim], weights [heads], keys [rows, dim].
std::vector<double> index_scores(const HostTensor& q, const HostTensor& weights,
                                 const IndexRows& keys);
// The topk best of the rows that are seen, in rising order, by a sort of all.
std::vector<int64_t> top_rows(const std::vector<double>& scores, int64_t topk,
                              const std::function<bool(int64_t row)>& sees);

}  // namespace fathom::ref
