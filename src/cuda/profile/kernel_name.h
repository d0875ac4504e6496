#pragma once
// What people call a kernel: its mangled name without namespaces, casts and parameters.
//
//   kernel_name("_ZN6fathom4cuda...")    // "product_kernel<float, 2, true>"

#include <string>

namespace fathom::cuda {

// At most 120 characters. A name that is not mangled stays as it is.
std::string kernel_name(const char* mangled);

}  // namespace fathom::cuda
