#pragma once
// What the tests of experts in i8 and i4x2 share: random inputs of six experts, of which a token chooses three, and
// calls over some of the tokens.
//
//   class Int4ExpertsTest : public QuantisedExpertsTest {};
//   const Inputs in = make_inputs(tokens, hidden, inter, ref::random_i4_weight);

#include <vector>

#include "ops/moe.h"
#include "tests/ops/product_fixture.h"

namespace fathom::ops_test {

class QuantisedExpertsTest : public ProductTest {
 protected:
  struct Inputs {
    HostTensor x, ids, weights;
    ref::HostWeight gate_up, down;
  };
  // make_weight(random, shape) gives the matrices. A few tokens have an expert less.
  template <class F>
  Inputs make_inputs(int64_t tokens, int64_t hidden, int64_t inter, const F& make_weight) {
    ref::Random random(static_cast<uint64_t>(tokens));
    Inputs in{.x = random.normal(act(), {tokens, hidden}),
              .ids = HostTensor(DType::kI32, {tokens, 3}),
              .weights = random.uniform(DType::kF32, {tokens, 3}, 0.1, 1),
              .gate_up = make_weight(random, std::vector<int64_t>{6, 2, inter, hidden}),
              .down = make_weight(random, std::vector<int64_t>{6, hidden, inter})};
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<int32_t> order = random.permutation(6);
      for (int64_t j = 0; j < 3; ++j) in.ids.at(t, j) = order[static_cast<size_t>(j)];
      if (t % 7 == 6) in.ids.at(t, 0) = -1;
    }
    return in;
  }

  HostTensor run(const Inputs& in, int64_t begin, int64_t end) {
    const DeviceTensor x = upload(in.x.rows(begin, end)), ids = upload(in.ids.rows(begin, end));
    const DeviceTensor weights = upload(in.weights.rows(begin, end));
    const DeviceTensor out = empty(act(), {end - begin, in.x.dim(1)});
    const DeviceWeight gate_up = upload_weight(in.gate_up), down = upload_weight(in.down);
    ops::moe_experts({.x = x.view(),
                      .ids = ids.view(),
                      .weights = weights.view(),
                      .gate_up = gate_up.view(),
                      .down = down.view(),
                      .out = out.view()},
                     stream());
    return download(out.view());
  }

  // All tokens against float64, and the last ones alone against what they got in company.
  void check(const Inputs& in, const Bounds& bounds) {
    const int64_t tokens = in.x.dim(0);
    const HostTensor all = run(in, 0, tokens);
    expect_close(all, ref::moe_experts(in.x, in.ids, in.weights, in.gate_up, in.down), bounds);
    for (const int64_t begin : {int64_t{0}, tokens / 2, tokens - 1})
      EXPECT_EQ(run(in, begin, tokens).values, all.rows(begin, tokens).values) << begin;
  }
};

}  // namespace fathom::ops_test
