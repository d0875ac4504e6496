#include "cuda/jit/headers.h"

#include "ops/mla.h"

namespace fathom::cuda {
namespace {

static_assert(ops::kMaxTreeTokens == 64, "the stand-in of ops/mla.h says so");

// Empty: only what the host compiles needs them.
constexpr const char* kNothing = "";

constexpr jit::Header kStandIns[] = {
    {"cstdint", R"(
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long;
#define INFINITY __int_as_float(0x7f800000)
)"},
    {"cstring", kNothing},
    {"cmath", kNothing},
    {"type_traits", R"(
namespace std {
template <class A, class B> inline constexpr bool is_same_v = false;
template <class A> inline constexpr bool is_same_v<A, A> = true;
template <bool kFirst, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;
}
)"},
    {"cuda_bf16.h", kNothing},
    {"cuda_fp16.h", R"(
struct __half { unsigned short bits; };
__device__ __forceinline__ __half __ushort_as_half(unsigned short bits) { return {bits}; }
__device__ __forceinline__ float __half2float(__half half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
  return value;
}
)"},
    {"tensor/dtype.h", R"(
#include <cstdint>
namespace fathom::tensor {
struct Bf16 { uint16_t bits; };
struct F8E4M3 { uint8_t bits; };
}
)"},
    {"tensor/tensor.h", kNothing},
    {"ops/kv_format.h", kNothing},
    {"ops/mla.h", R"(
namespace fathom::ops {
struct MlaAbsorbedArgs;
inline constexpr int kMaxTreeTokens = 64;
}
)"},
};

std::vector<jit::Header> all_headers() {
  std::vector<jit::Header> headers(std::begin(kStandIns), std::end(kStandIns));
  for (const jit::Header& header : embedded_headers()) headers.push_back(header);
  return headers;
}

}  // namespace

std::span<const jit::Header> device_headers() {
  static const std::vector<jit::Header> headers = all_headers();
  return headers;
}

const char* device_type_name(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 ? "float" : dtype == tensor::DType::kBf16 ? "Bf16" : "F8E4M3";
}

std::vector<std::string> device_options() {
  return {"-arch=sm_90a", "-std=c++20", "-default-device"};
}

}  // namespace fathom::cuda
