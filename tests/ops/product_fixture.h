#pragma once
// What the tests of linear and head_linear share: weights on the device, and which calls must give a row the same bits.
//
//   class LinearTest : public ProductTest {};
//   for (const RowClass& row_class : row_classes()) ...   // all rows at once, then row_class.parts of them

#include <memory>
#include <utility>
#include <vector>

#include "cuda/linear/batch_product.h"
#include "ops/linear.h"
#include "tests/ops/device.h"
#include "tests/ref/oracle.h"

namespace fathom::ops_test {

class ProductTest : public OpsTest {
 protected:
  struct DeviceWeight {
    DeviceTensor data;
    std::unique_ptr<DeviceTensor> scale;
    ops::Weight view() const {
      return {.data = data.view(), .scale = scale ? scale->view() : Tensor()};
    }
  };

  // Calls whose rows have the same bits among themselves (docs/contracts/ops.md, section 4): the largest, and parts
  // of its rows as calls of their own.
  struct RowClass {
    int64_t rows = 0;
    std::vector<std::pair<int64_t, int64_t>> parts;
  };
  std::vector<RowClass> row_classes() const {
    if (backend().batch_invariant)
      return {{200, {{0, 1}, {199, 200}, {63, 65}, {5, 12}, {20, 50}, {90, 172}, {1, 128}}}};
    constexpr int64_t kFew = cuda::kMaxStreamedTokens, kMany = cuda::kMaxBatchTokens;
    return {
        {kFew, {{0, 1}, {kFew - 1, kFew}, {1, kFew}, {2, 5}}},
        {kMany, {{0, kFew + 1}, {kMany - 17, kMany}, {20, 50}, {64, 97}, {30, 95}, {1, kMany}}}};
  }

  DeviceWeight upload_weight(const ref::HostWeight& weight) {
    DeviceWeight out{.data = upload(weight.data), .scale = nullptr};
    if (!weight.scale.shape.empty()) {
      out.scale = std::make_unique<DeviceTensor>(upload(weight.scale));
    }
    return out;
  }
};

}  // namespace fathom::ops_test
