// linear, linear_pair, moe_experts and moe_experts_shared with i8 weights, whose scales are of blocks or of channels.

#include <cmath>
#include <memory>
#include <utility>

#include "tests/ops/quantised_products.h"

namespace fathom::ops_test {
namespace {

using ops::ScaleForm;

constexpr ScaleForm kScaleForms[] = {ScaleForm::kBlocks, ScaleForm::kChannels};

// What makes weights of one form, for the checks that hold for all.
auto weights_of(ScaleForm form) {
  return [form](ref::Random& random, std::vector<int64_t> shape) {
    return ref::random_i8_weight(random, form, std::move(shape));
  };
}

class Int8Test : public QuantisedProductTest {
 protected:
  // The product of rows of f32, in memory of the host.
  std::vector<uint8_t> of_the_reference(const HostTensor& x, const ref::HostWeight& weight,
                                        ops::Stream& reference) {
    const int64_t tokens = x.dim(0), in = x.dim(1), out = weight.data.dim(0);
    std::vector<float> rows(x.values.begin(), x.values.end());
    std::vector<float> scales(weight.scale.values.begin(), weight.scale.values.end());
    std::vector<int8_t> values;
    for (const double value : weight.data.values) values.push_back(static_cast<int8_t>(value));
    std::vector<uint8_t> bits(static_cast<size_t>(tokens * out) * sizeof(float));
    const ops::Weight stored{
        .data = Tensor::contiguous(values.data(), DType::kI8, {out, in}),
        .scale = Tensor::contiguous(scales.data(), DType::kF32,
                                    {weight.scale.dim(0), weight.scale.dim(1)})};
    ops::linear({.x = Tensor::contiguous(rows.data(), DType::kF32, {tokens, in}),
                 .weight = stored,
                 .out = Tensor::contiguous(bits.data(), DType::kF32, {tokens, out})},
                reference);
    return bits;
  }
};
INSTANTIATE_TEST_SUITE_P(backends, Int8Test, testing::ValuesIn(backends_with_weights(DType::kI8)),
                         backend_name);

constexpr Bounds kInt8Bounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                             .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};

const char* form_name(ScaleForm form) { return form == ScaleForm::kBlocks ? "blocks" : "channels"; }

// Cuts of the published shapes, and odd ones: parts of a vector of every width, a block and a value.
TEST_P(Int8Test, products_match_float64) {
  for (const ScaleForm form : kScaleForms) {
    SCOPED_TRACE(form_name(form));
    check_products({{7168, 130},
                    {2048, 71},
                    {512, 256},
                    {384, 1},
                    {300, 129},
                    {129, 3},
                    {128, 5},
                    {69, 69},
                    {61, 1},
                    {1, 61}},
                   weights_of(form), kInt8Bounds);
  }
}

// The sums are exact and every operation after them is written down, but for the order in which a GPU adds blocks.
TEST_P(Int8Test, products_have_the_bits_of_the_reference) {
  const ops::Backend& reference = cpu::reference_backend();
  const std::unique_ptr<ops::Stream> reference_stream = reference.make_stream({});
  for (const ScaleForm form : kScaleForms)
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1664, 133}, {333, 70}}) {
      if (backend().device_memory && form == ScaleForm::kBlocks) continue;
      ref::Random random(21);
      const HostTensor x = random.normal(act(), {11, in}, 3.0);
      const ref::HostWeight weight = ref::random_i8_weight(random, form, {out, in});
      const DeviceTensor here = empty(DType::kF32, {11, out}), device_x = upload(x);
      const DeviceWeight device_weight = upload_weight(weight);
      ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = here.view()},
                  stream());
      const std::vector<uint8_t> bits = bytes(here.view());
      EXPECT_TRUE(bits == of_the_reference(x, weight, *reference_stream))
          << form_name(form) << " " << in;
    }
}

// 127 times -128 in every place: what an instruction that saturates, or 31 bits, would get wrong.
TEST_P(Int8Test, the_largest_sums_are_exact) {
  constexpr int64_t kIn = 18432;
  const HostTensor x(act(), {1, kIn}, 1.0);
  for (const double q : {-128.0, 127.0}) {
    const ref::HostWeight weight{.data = HostTensor(DType::kI8, {5, kIn}, q),
                                 .scale = HostTensor(DType::kF32, {5, 1}, 1.0)};
    const DeviceWeight device_weight = upload_weight(weight);
    const DeviceTensor device_x = upload(x), y = empty(act(), {1, 5});
    ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = y.view()}, stream());
    const float scale = 1.0f / 127.0f;
    const float expected = static_cast<float>(127 * static_cast<int64_t>(q) * kIn) * scale;
    for (int64_t o = 0; o < 5; ++o)
      EXPECT_EQ(download(y.view()).at(0, o), ref::round_to(act(), expected)) << q;
  }
}

TEST_P(Int8Test, adds_to_the_output_when_told_and_takes_strided_rows) {
  for (const ScaleForm form : kScaleForms) {
    SCOPED_TRACE(form_name(form));
    check_strided_and_added(39, 261, weights_of(form), kInt8Bounds);
  }
}

TEST_P(Int8Test, rows_do_not_depend_on_the_batch_nor_on_garbage_in_it) {
  for (const ScaleForm form : kScaleForms) {
    SCOPED_TRACE(form_name(form));
    check_rows_alone(weights_of(form));
  }
}

TEST_P(Int8Test, nan_and_infinity_make_their_row_nan_and_no_other) {
  for (const ScaleForm form : kScaleForms)
    for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
      ref::Random random(14);
      HostTensor x = random.normal(act(), {5, 200});
      x.at(2, 150) = bad;
      const DeviceWeight weight = upload_weight(ref::random_i8_weight(random, form, {40, 200}));
      const DeviceTensor device_x = upload(x), out = empty(act(), {5, 40});
      ops::linear({.x = device_x.view(), .weight = weight.view(), .out = out.view()}, stream());
      const HostTensor actual = download(out.view());
      for (int64_t t = 0; t < 5; ++t)
        for (int64_t o = 0; o < 40; ++o)
          EXPECT_EQ(std::isnan(actual.at(t, o)), t == 2) << form_name(form) << " " << t;
    }
}

TEST_P(Int8Test, a_pair_is_its_two_products) {
  for (const ScaleForm form : kScaleForms) {
    SCOPED_TRACE(form_name(form));
    check_pair(weights_of(form));
  }
}

class Int8ExpertsTest : public QuantisedExpertsTest {
 protected:
  Inputs make_inputs(ScaleForm form, int64_t tokens, int64_t hidden, int64_t inter) {
    return QuantisedExpertsTest::make_inputs(tokens, hidden, inter, weights_of(form));
  }
};
INSTANTIATE_TEST_SUITE_P(backends, Int8ExpertsTest,
                         testing::ValuesIn(backends_with_weights(DType::kI8)), backend_name);

// A hidden value at the edge of two integers may fall to either.
constexpr Bounds kInt8ExpertBounds{
    .f32 = {.abs = 2e-2, .rel = 1e-3, .one_minus_cosine = 1e-5},
    .bf16 = {.abs = 5e-2, .rel = 5e-2, .one_minus_cosine = 1e-3, .rare = 5e-3}};

TEST_P(Int8ExpertsTest, match_float64_and_do_not_depend_on_the_batch) {
  for (const ScaleForm form : kScaleForms)
    for (const auto& [tokens, hidden, inter] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 512, 256}, {69, 200, 140}, {130, 61, 33}}) {
      SCOPED_TRACE(testing::Message()
                   << form_name(form) << " " << tokens << "x" << hidden << "x" << inter);
      check(make_inputs(form, tokens, hidden, inter), kInt8ExpertBounds);
    }
}

class SharedInt8ExpertsTest : public Int8ExpertsTest {};
INSTANTIATE_TEST_SUITE_P(backends, SharedInt8ExpertsTest, testing::ValuesIn([] {
                           std::vector<TestedBackend> backends = backends_with_weights(DType::kI8);
                           std::erase_if(backends, [](const TestedBackend& tested) {
                             return tested.backend->moe_experts_shared.run == nullptr;
                           });
                           return backends;
                         }()),
                         backend_name);

TEST_P(SharedInt8ExpertsTest, are_their_parts) {
  for (const ScaleForm form : kScaleForms) {
    const Inputs in = make_inputs(form, 5, 256, 128);
    ref::Random random(3);
    const DeviceWeight gate_up = upload_weight(in.gate_up), down = upload_weight(in.down);
    const ref::HostWeight host_gate_up = ref::random_i8_weight(random, form, {2, 128, 256});
    const DeviceWeight shared_gate_up = upload_weight(host_gate_up);
    const ref::HostWeight host_down = ref::random_i8_weight(random, form, {256, 128});
    const DeviceWeight shared_down = upload_weight(host_down);
    const DeviceTensor x = upload(in.x), ids = upload(in.ids), weights = upload(in.weights);
    const DeviceTensor out = empty(act(), {5, 256});
    ops::moe_experts_shared({.experts = {.x = x.view(),
                                         .ids = ids.view(),
                                         .weights = weights.view(),
                                         .gate_up = gate_up.view(),
                                         .down = down.view(),
                                         .out = out.view()},
                             .shared_gate_up = shared_gate_up.view(),
                             .shared_down = shared_down.view()},
                            stream());
    ref::HostWeight one_gate_up = host_gate_up, one_down = host_down;
    one_gate_up.data = one_gate_up.data.reshaped({1, 2, 128, 256});
    one_gate_up.scale.shape.insert(one_gate_up.scale.shape.begin(), 1);
    one_down.data = one_down.data.reshaped({1, 256, 128});
    one_down.scale.shape.insert(one_down.scale.shape.begin(), 1);
    const HostTensor ones(DType::kF32, {5, 1}, 1.0), first(DType::kI32, {5, 1}, 0.0);
    HostTensor expected = ref::moe_experts(in.x, first, ones, one_gate_up, one_down);
    const HostTensor routed = ref::moe_experts(in.x, in.ids, in.weights, in.gate_up, in.down);
    for (size_t i = 0; i < expected.values.size(); ++i) expected.values[i] += routed.values[i];
    expect_close(download(out.view()), expected, kInt8ExpertBounds);
  }
}

}  // namespace
}  // namespace fathom::ops_test
