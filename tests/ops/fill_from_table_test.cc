// fill_from_table, and dummy weights that a device makes: the bits that the host makes.

#include "ops/fill_from_table.h"

#include <cstring>

#include "base/rng.h"
#include "tests/ops/device.h"
#include "weights/loader.h"

namespace fathom::ops_test {
namespace {

class FillFromTableTest : public OpsTest {
 protected:
  // Of random bytes, whatever they mean.
  DeviceTensor random_table(DType dtype, int64_t elements) {
    ref::Random random(7);
    host_table_.resize(static_cast<size_t>(elements * tensor::dtype_bytes(dtype)));
    const HostTensor bytes =
        random.integers(DType::kU8, {static_cast<int64_t>(host_table_.size())}, 0, 256);
    for (size_t i = 0; i < host_table_.size(); ++i)
      host_table_[i] = static_cast<uint8_t>(bytes.values[i]);
    DeviceTensor table = empty(dtype, {elements});
    backend().copy_to_device(table.view().data(), host_table_.data(),
                             static_cast<int64_t>(host_table_.size()), stream());
    stream().synchronize();
    return table;
  }

  // As the contract has it, element by element.
  std::vector<uint8_t> expected(const ops::FillFromTableArgs& args) const {
    const auto bytes = static_cast<size_t>(tensor::dtype_bytes(args.out.dtype()));
    std::vector<uint8_t> out;
    for (int64_t row = 0; row < args.out.dim(0); ++row) {
      for (int64_t column = 0; column < args.out.dim(1); ++column) {
        const int64_t at = args.first + row * args.row_elements + column;
        const uint32_t random = philox(args.seed, args.key, static_cast<uint64_t>(at / 4096))[0];
        const size_t place = random % static_cast<uint64_t>(args.table.dim(0) - 4095) +
                             static_cast<uint64_t>(at % 4096);
        const auto from = host_table_.begin() + static_cast<int64_t>(place * bytes);
        out.insert(out.end(), from, from + static_cast<int64_t>(bytes));
      }
    }
    return out;
  }

  std::vector<uint8_t> host_table_;
};
INSTANTIATE_TEST_SUITE_P(backends, FillFromTableTest, testing::ValuesIn(tested_backends()),
                         backend_name);

TEST_P(FillFromTableTest, copies_blocks_of_the_table_to_any_place) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3, DType::kI8, DType::kI4x2}) {
    for (const int64_t elements : {4096, 5000, 1 << 17}) {
      const DeviceTensor table = random_table(dtype, elements);
      for (const int64_t columns : {0, 1, 15, 61, 69, 2046, 4096, 4097, 10001}) {
        for (const int64_t first : {0, 1, 4095, 123457}) {
          const DeviceTensor wide = empty(dtype, {3, columns + 41});
          const Tensor out = wide.view().slice(1, 9, columns + 9);
          const ops::FillFromTableArgs args{.out = out,
                                            .table = table.view(),
                                            .seed = 11,
                                            .key = 0x123456789abcdef,
                                            .first = first,
                                            .row_elements = 3 * columns + 5};
          ops::fill_from_table(args, stream());
          ASSERT_EQ(bytes(out), expected(args))
              << tensor::dtype_name(dtype) << " table of " << elements << ", " << columns
              << " columns from " << first;
          for (const Tensor& around :
               {wide.view().slice(1, 0, 9), wide.view().slice(1, columns + 9, columns + 41)})
            for (const uint8_t byte : bytes(around))
              ASSERT_EQ(byte, poison(dtype)) << columns << " columns";
        }
      }
    }
  }
}

TEST_P(FillFromTableTest, one_long_row_is_filled_to_its_end) {
  const DeviceTensor table = random_table(DType::kBf16, 1 << 17);
  for (const int64_t first : {0, 4095, 8192}) {
    const DeviceTensor out = empty(DType::kBf16, {1, 300'007});
    const ops::FillFromTableArgs args{.out = out.view(),
                                      .table = table.view(),
                                      .seed = 3,
                                      .key = 5,
                                      .first = first,
                                      .row_elements = 300'007};
    ops::fill_from_table(args, stream());
    ASSERT_EQ(bytes(out.view()), expected(args)) << first;
  }
}

// One parameter in memory of the host and in memory of the backend.
class DummyWeightsTest : public OpsTest {
 protected:
  struct Shape {
    DType dtype;
    int64_t rows, columns;  // of the rank's part
    weights::Shard shard = {};
    float stddev = 0.02f;
  };

  weights::Parameter parameter(const Shape& shape, const Tensor& data, const Tensor& scale) const {
    return {.name = "model.layers.3.mlp.down_proj.weight",
            .data = data,
            .scale = scale,
            .shard = shape.shard,
            .dummy_stddev = shape.stddev};
  }

  void expect_bits_of_the_host(const Shape& shape) {
    const bool f8 = shape.dtype == DType::kF8E4M3;
    const int64_t scale_rows = (shape.rows + 127) / 128,
                  scale_columns = (shape.columns + 127) / 128;
    std::vector<uint8_t> data(
        static_cast<size_t>(shape.rows * shape.columns * tensor::dtype_bytes(shape.dtype)));
    std::vector<float> scale(static_cast<size_t>(scale_rows * scale_columns));
    const auto scale_or_null = [&](void* at) {
      return f8 ? Tensor::contiguous(at, DType::kF32, {scale_rows, scale_columns}) : Tensor();
    };
    const weights::Parameter on_host =
        parameter(shape, Tensor::contiguous(data.data(), shape.dtype, {shape.rows, shape.columns}),
                  scale_or_null(scale.data()));
    ASSERT_TRUE(weights::fill_dummy({on_host}, {.num_threads = 2, .dummy_seed = 5}));

    // A slice of a fused matrix: rows lie apart.
    const DeviceTensor wide = empty(shape.dtype, {shape.rows, shape.columns + 24});
    const DeviceTensor alone = empty(shape.dtype, {shape.rows, shape.columns});
    const DeviceTensor device_scale = empty(DType::kF32, {scale_rows, scale_columns});
    for (const Tensor& out : {alone.view(), wide.view().slice(1, 8, shape.columns + 8)}) {
      bool found = false;
      weights::Parameter on_device =
          parameter(shape, out, scale_or_null(device_scale.view().data()));
      on_device.found = &found;
      weights::LoadProgress last;
      ASSERT_TRUE(weights::fill_dummy(
          {on_device},
          {.dummy_seed = 5,
           .on_progress = [&](const weights::LoadProgress& progress) { last = progress; }},
          stream()));
      EXPECT_TRUE(found);
      EXPECT_EQ(last.bytes_done, out.num_bytes() + (f8 ? device_scale.view().num_bytes() : 0));
      EXPECT_EQ(last.bytes_done, last.bytes_total);
      ASSERT_TRUE(bytes(out) == data) << out.describe() << " axis " << shape.shard.axis;
      if (f8) {
        EXPECT_EQ(download_as<float>(device_scale.view()), scale);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(backends, DummyWeightsTest, testing::ValuesIn(one_of_each_backend()),
                         backend_name);

TEST_P(DummyWeightsTest, a_device_makes_the_bits_of_the_host) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    for (const int64_t rows : {1, 61, 130})
      for (const int64_t columns : {1, 69, 2046, 7168})
        for (const float stddev : {0.02f, 0.5f, 0.0f})
          expect_bits_of_the_host(
              {.dtype = dtype, .rows = rows, .columns = columns, .stddev = stddev});
}

TEST_P(DummyWeightsTest, the_parts_of_ranks_have_the_bits_of_the_host) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    for (const int axis : {0, 1})
      for (const int rank : {0, 2})
        expect_bits_of_the_host({.dtype = dtype,
                                 .rows = 256,
                                 .columns = 384,
                                 .shard = {.axis = axis, .rank = rank, .size = 3}});
}

TEST_P(DummyWeightsTest, parameters_of_others_are_left_out) {
  EXPECT_TRUE(weights::fill_dummy({{.name = "w", .held_elsewhere = true}}, {}, stream()));
}

}  // namespace
}  // namespace fathom::ops_test
