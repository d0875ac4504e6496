#include "tests/ops/device.h"

#include <cmath>

namespace fathom::ops_test {
namespace {

Tensor make_view(void* data, DType dtype, const std::vector<int64_t>& s) {
  switch (s.size()) {
    case 1:
      return Tensor::contiguous(data, dtype, {s[0]});
    case 2:
      return Tensor::contiguous(data, dtype, {s[0], s[1]});
    case 3:
      return Tensor::contiguous(data, dtype, {s[0], s[1], s[2]});
    case 4:
      return Tensor::contiguous(data, dtype, {s[0], s[1], s[2], s[3]});
    default:
      FATHOM_CHECK(false, "rank " << s.size());
  }
}

template <class T>
void pack(const std::vector<double>& values, std::vector<uint8_t>& bytes) {
  bytes.resize(values.size() * sizeof(T));
  T* out = reinterpret_cast<T*>(bytes.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      out[i] = static_cast<T>(values[i]);
    } else {
      out[i] = tensor::from_float<T>(static_cast<float>(values[i]));
    }
  }
}

// Of pairs the value in the low bits comes first.
void pack_pairs(const std::vector<double>& values, std::vector<uint8_t>& bytes) {
  bytes.resize(values.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto low = static_cast<unsigned>(static_cast<int>(values[2 * i]));
    const auto high = static_cast<unsigned>(static_cast<int>(values[2 * i + 1]));
    bytes[i] = static_cast<uint8_t>((low & 15u) | (high & 15u) << 4);
  }
}

template <class T>
void unpack(const std::vector<uint8_t>& bytes, std::vector<double>& values) {
  const T* in = reinterpret_cast<const T*>(bytes.data());
  values.resize(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      values[i] = static_cast<double>(in[i]);
    } else {
      values[i] = static_cast<double>(tensor::to_float(in[i]));
    }
  }
}

// Calls f with a value of the storage type.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kBf16:
      return f(tensor::Bf16{});
    case DType::kF16:
      return f(tensor::F16{});
    case DType::kF8E4M3:
      return f(tensor::F8E4M3{});
    case DType::kI64:
      return f(int64_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kI4x2:
    case DType::kU4x2:
      return f(uint8_t{});
  }
}

std::vector<int64_t> shape_of(const Tensor& view) {
  std::vector<int64_t> shape;
  for (int axis = 0; axis < view.rank(); ++axis) shape.push_back(view.dim(axis));
  return shape;
}

}  // namespace

DeviceTensor::DeviceTensor(const ops::Backend& backend, ops::Stream& stream, DType dtype,
                           std::vector<int64_t> shape)
    : backend_(&backend) {
  const int64_t num_bytes =
      std::ssize(HostTensor(dtype, shape).values) * tensor::dtype_bytes(dtype);
  void* data = backend.allocate(num_bytes);
  FATHOM_CHECK(data != nullptr, "no memory for " << num_bytes << " bytes");
  const std::vector<uint8_t> fill(static_cast<size_t>(num_bytes), poison(dtype));
  backend.copy_to_device(data, fill.data(), num_bytes, stream);
  stream.synchronize();
  view_ = make_view(data, dtype, shape);
}

DeviceTensor::DeviceTensor(DeviceTensor&& other) noexcept
    : backend_(other.backend_), view_(other.view_) {
  other.view_ = Tensor();
}

DeviceTensor::~DeviceTensor() {
  if (!view_.is_null()) backend_->deallocate(view_.data());
}

void OpsTest::run_on(const TestedBackend& tested) {
  tested_ = tested;
  stream_ = backend().make_stream(tested_.stream);
}

DeviceTensor OpsTest::empty(DType dtype, std::vector<int64_t> shape) {
  return DeviceTensor(backend(), stream(), dtype, std::move(shape));
}

DeviceTensor OpsTest::upload(const HostTensor& host) {
  std::vector<int64_t> shape = host.shape;
  std::vector<uint8_t> packed;
  if (tensor::holds_pairs(host.dtype)) {
    shape.back() /= 2;
    pack_pairs(host.values, packed);
  } else {
    with_type(host.dtype, [&](auto type) { pack<decltype(type)>(host.values, packed); });
  }
  DeviceTensor out = empty(host.dtype, shape);
  copy_in(out.view(), packed.data(), packed.size());
  return out;
}

HostTensor OpsTest::download(const Tensor& view) {
  HostTensor host(view.dtype(), shape_of(view));
  const std::vector<uint8_t> packed = bytes(view);
  with_type(view.dtype(), [&](auto type) { unpack<decltype(type)>(packed, host.values); });
  return host;
}

std::vector<uint8_t> OpsTest::bytes(const Tensor& view) {
  std::vector<uint8_t> out;
  if (view.is_contiguous() || view.rank() == 1) {
    out.resize(static_cast<size_t>(view.num_bytes()));
    copy_out(out.data(), view, out.size());
    return out;
  }
  for (int64_t i = 0; i < view.dim(0); ++i) {
    const std::vector<uint8_t> row = bytes(view[i]);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

void OpsTest::expect_close(const HostTensor& actual, const HostTensor& expected,
                           const Bounds& bounds) {
  const Bound& bound = act() == DType::kF32 ? bounds.f32 : bounds.bf16;
  ASSERT_EQ(actual.shape, expected.shape);
  double dot = 0, actual_squares = 0, expected_squares = 0, worst = 0;
  size_t num_rare = 0;
  for (size_t i = 0; i < actual.values.size(); ++i) {
    const double a = actual.values[i], e = expected.values[i];
    ASSERT_EQ(std::isnan(a), std::isnan(e)) << "element " << i << ": " << a << ", expected " << e;
    if (std::isnan(e)) continue;
    if (std::isinf(e) || std::isinf(a)) {
      ASSERT_EQ(a, e) << "element " << i;
      continue;
    }
    const double limit = bound.abs + bound.rel * std::fabs(e);
    ASSERT_LE(std::fabs(a - e), bound.rare > 0 ? kRareFactor * limit : limit)
        << "element " << i << ": " << a << ", expected " << e;
    num_rare += std::fabs(a - e) > limit;
    worst = std::max(worst, std::fabs(a - e));
    dot += a * e;
    actual_squares += a * a;
    expected_squares += e * e;
  }
  RecordProperty("max_abs_error", std::to_string(worst));
  const auto num_elements = static_cast<double>(actual.values.size());
  EXPECT_LE(static_cast<double>(num_rare),
            bound.rare > 0 ? std::max(1.0, bound.rare * num_elements) : 0.0)
      << "elements of " << num_elements << " are beyond the bound, largest error " << worst;
  if (actual_squares == 0 || expected_squares == 0) return;
  const double one_minus_cosine = 1 - dot / std::sqrt(actual_squares * expected_squares);
  EXPECT_LE(one_minus_cosine, bound.one_minus_cosine) << "largest error " << worst;
}

void OpsTest::copy_in(const Tensor& view, const void* from, size_t num_bytes) {
  ASSERT_EQ(static_cast<int64_t>(num_bytes), view.num_bytes());
  backend().copy_to_device(view.data(), from, view.num_bytes(), stream());
  stream().synchronize();
}

void OpsTest::copy_out(void* to, const Tensor& view, size_t num_bytes) {
  ASSERT_EQ(static_cast<int64_t>(num_bytes), view.num_bytes());
  backend().copy_to_host(to, view.data(), view.num_bytes(), stream());
  stream().synchronize();
}

std::string backend_name(const testing::TestParamInfo<TestedBackend>& info) {
  return info.param.name;
}

}  // namespace fathom::ops_test
