#pragma once
// Compiler: turns a source into code for the GPU. NVRTC is the one that there is; tests have others.
//
//   Result<std::unique_ptr<Compiler>> compiler = open_nvrtc("");       // "" = where the system has it
//   Result<std::string> cubin = (*compiler)->compile(source);
//
// NVRTC is opened at run time, and its few functions are declared by ourselves. Thread-safe.

#include <memory>
#include <string>

#include "base/result.h"
#include "jit/source.h"

namespace fathom::jit {

class Compiler {
 public:
  virtual ~Compiler() = default;
  // Code of one version may differ from that of another.
  virtual const std::string& name() const = 0;  // "NVRTC 13.0"
  // The error has the compiler's first words.
  virtual Result<std::string> compile(const Source& source) = 0;
};

// library: a file, or "" for libnvrtc.so of CUDA 13 or 12. The error names what was tried.
Result<std::unique_ptr<Compiler>> open_nvrtc(const std::string& library);

}  // namespace fathom::jit
