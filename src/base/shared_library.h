#pragma once
// Libraries that are opened at run time, so that the program starts where they are not installed.
//
//   bool find_all(void* library, Functions& to) { return find(library, "cublasLtCreate", to.create) && ...; }
//   Result<Functions> functions = open_library<Functions>("cuBLASLt", {"libcublasLt.so.13"}, find_all);
//
// Thread-safe.

#include <dlfcn.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

// Whether the library has a function of that name, which is then in `function`.
template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The functions of the first library that can be opened and has all of them; it stays open. The error names `what` and
// all that was tried.
template <class Functions>
Result<Functions> open_library(const std::string& what, const std::vector<std::string>& names,
                               bool (*find_all)(void* library, Functions& to)) {
  std::string tried;
  for (const std::string& name : names) {
    tried += (tried.empty() ? "" : ", ") + name;
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Functions functions;
    if (find_all(library, functions)) return functions;
    tried += " (too old)";
    dlclose(library);
  }
  return Error{ErrorCode::kNotFound, what + " cannot be opened, tried " + tried};
}

}  // namespace fathom
