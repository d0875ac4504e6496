#pragma once
// What the tests of products with integer weights share, i8 and i4x2: checks that hold for every such weight, made by
// make(random, shape), and experts, of which a token chooses three of six.
//
//   class Int4Test : public QuantisedProductTest {};
//   check_rows_alone(ref::random_i4_weight);

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/linear.h"
#include "ops/moe.h"
#include "tests/ops/product_fixture.h"

namespace fathom::ops_test {

inline std::vector<TestedBackend> backends_with_weights(DType dtype) {
  std::vector<TestedBackend> backends = tested_backends();
  std::erase_if(backends, [dtype](const TestedBackend& tested) {
    return !tested.backend->supports("linear", dtype);
  });
  return backends;
}

class QuantisedProductTest : public ProductTest {
 protected:
  std::vector<uint8_t> product(const HostTensor& x, const DeviceWeight& weight) {
    const DeviceTensor device_x = upload(x);
    const DeviceTensor out = empty(act(), {x.dim(0), weight.view().data.dim(0)});
    ops::linear({.x = device_x.view(), .weight = weight.view(), .out = out.view()}, stream());
    return bytes(out.view());
  }

  // shapes: in, out. Against float64.
  template <class F>
  void check_products(const std::vector<std::pair<int64_t, int64_t>>& shapes, const F& make,
                      const Bounds& bounds) {
    for (const auto& [in, out] : shapes) {
      ref::Random random(static_cast<uint64_t>(in * 1000 + out));
      const ref::HostWeight weight = make(random, std::vector<int64_t>{out, in});
      const DeviceWeight device_weight = upload_weight(weight);
      for (const int64_t tokens : {0, 1, 2, 3, 7, 40}) {
        SCOPED_TRACE(testing::Message() << tokens << "x" << in << "x" << out);
        const HostTensor x = random.normal(act(), {tokens, in});
        const DeviceTensor device_x = upload(x), y = empty(act(), {tokens, out});
        ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = y.view()},
                    stream());
        expect_close(download(y.view()), ref::linear(x, weight), bounds);
      }
    }
  }

  // Of rows of `in` channels that begin at `first` of longer ones, added to columns of what is there.
  template <class F>
  void check_strided_and_added(int64_t first, int64_t in, const F& make, const Bounds& bounds) {
    ref::Random random(11);
    const HostTensor x = random.normal(act(), {69, 300}), before = random.normal(act(), {69, 200});
    const ref::HostWeight weight = make(random, std::vector<int64_t>{131, in});
    const DeviceTensor device_x = upload(x), device_out = upload(before);
    const DeviceWeight device_weight = upload_weight(weight);
    ops::linear({.x = device_x.view().slice(1, first, first + in),
                 .weight = device_weight.view(),
                 .accumulate = true,
                 .out = device_out.view().slice(1, 5, 136)},
                stream());
    HostTensor expected = before;
    const HostTensor product = ref::linear(x.columns(first, first + in), weight);
    for (int64_t t = 0; t < 69; ++t)
      for (int64_t o = 0; o < 131; ++o) expected.at(t, 5 + o) += product.at(t, o);
    expect_close(download(device_out.view()), expected, bounds);
  }

  // A row of `in` channels has the same bits in every batch of its class, beside garbage too.
  template <class F>
  void check_rows_alone(const F& make, int64_t in = 400) {
    for (const RowClass& row_class : row_classes()) {
      ref::Random random(13);
      HostTensor x = random.normal(act(), {row_class.rows, in});
      const DeviceWeight weight = upload_weight(make(random, std::vector<int64_t>{333, in}));
      const std::vector<uint8_t> all = product(x, weight);
      const size_t row_bytes = all.size() / static_cast<size_t>(row_class.rows);
      for (const auto& [begin, end] : row_class.parts) {
        const std::vector<uint8_t> some = product(x.rows(begin, end), weight);
        EXPECT_TRUE(std::equal(some.begin(), some.end(),
                               all.begin() + static_cast<int64_t>(row_bytes) * begin))
            << "rows " << begin << " to " << end << " of " << row_class.rows;
      }
      for (const double garbage : kGarbage) {
        x.at(7, in - 1) = ref::round_to(act(), garbage);
        std::vector<uint8_t> dirty = product(x, weight);
        for (size_t i = 0; i < all.size(); ++i)
          if (i / row_bytes == 7) dirty[i] = all[i];
        EXPECT_TRUE(dirty == all) << garbage;
      }
    }
  }

  template <class F>
  void check_pair(const F& make, int64_t in = 300) {
    for (const int64_t tokens : {1, 9, 100}) {
      ref::Random random(15);
      const HostTensor x = random.normal(act(), {tokens, in});
      const DeviceWeight a = upload_weight(make(random, std::vector<int64_t>{133, in}));
      const DeviceWeight b = upload_weight(make(random, std::vector<int64_t>{70, in}));
      const DeviceTensor device_x = upload(x);
      const DeviceTensor out_a = empty(act(), {tokens, 133}), out_b = empty(act(), {tokens, 70});
      ops::linear_pair(
          {.x = device_x.view(), .a = {a.view(), out_a.view()}, .b = {b.view(), out_b.view()}},
          stream());
      EXPECT_TRUE(bytes(out_a.view()) == product(x, a)) << tokens;
      EXPECT_TRUE(bytes(out_b.view()) == product(x, b)) << tokens;
    }
  }
};

class QuantisedExpertsTest : public ProductTest {
 protected:
  struct Inputs {
    HostTensor x, ids, weights;
    ref::HostWeight gate_up, down;
  };
  // A few tokens have an expert less.
  template <class F>
  Inputs make_inputs(int64_t tokens, int64_t hidden, int64_t inter, const F& make) {
    ref::Random random(static_cast<uint64_t>(tokens));
    Inputs in{.x = random.normal(act(), {tokens, hidden}),
              .ids = HostTensor(DType::kI32, {tokens, 3}),
              .weights = random.uniform(DType::kF32, {tokens, 3}, 0.1, 1),
              .gate_up = make(random, std::vector<int64_t>{6, 2, inter, hidden}),
              .down = make(random, std::vector<int64_t>{6, hidden, inter})};
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

  // All tokens against float64, and the last ones alone against what they got in company of their class.
  void check(const Inputs& in, const Bounds& bounds) {
    const int64_t tokens = in.x.dim(0);
    const HostTensor all = run(in, 0, tokens);
    expect_close(all, ref::moe_experts(in.x, in.ids, in.weights, in.gate_up, in.down), bounds);
    const bool has_classes = !backend().batch_invariant && tokens > cuda::kMaxBatchTokens;
    for (const int64_t begin : {int64_t{0}, tokens / 2, tokens - 1}) {
      if (has_classes && tokens - begin <= cuda::kMaxBatchTokens) continue;
      EXPECT_EQ(run(in, begin, tokens).values, all.rows(begin, tokens).values) << begin;
    }
  }
};

}  // namespace fathom::ops_test
