#pragma once
// What sources for NVRTC may include: device code of src/cuda/, the same that nvcc compiles, and in place of headers of
// the toolkit and of the standard library the few names of theirs that it uses.
//
//   const jit::Source source{.text = text, .headers = device_headers(), .options = device_options()};
//
// Code that only the host needs is left out by __CUDACC_RTC__. Thread-safe.

#include <span>
#include <string>
#include <vector>

#include "jit/source.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

std::span<const jit::Header> device_headers();
std::vector<std::string> device_options();

// As device code names it: f32, bf16, f8_e4m3.
const char* device_type_name(tensor::DType dtype);

// Of src/, as module.cmake lists them.
std::span<const jit::Header> embedded_headers();

}  // namespace fathom::cuda
