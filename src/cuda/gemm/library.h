#pragma once
// Who multiplies many rows, and the library that may.
//
//   set_gemm_backend(GemmBackend::kFathom);                 // --gemm-backend; at the start of the program
//   const Result<std::string> name = find_cublaslt();       // "cuBLASLt 13.1.0"
//
// Thread-safe but for set_gemm_backend(), which comes first.

#include <string>

#include "base/result.h"

namespace fathom::cuda {

// Who multiplies many rows: whichever a table of measurements says is faster, our kernels alone, or cuBLASLt wherever
// it can. The library is opened at run time; without it all products are ours.
enum class GemmBackend { kAuto, kFathom, kCublasLt };
// For the rest of the process. Called before there are streams.
void set_gemm_backend(GemmBackend backend);
// What cuBLASLt on this machine is, "cuBLASLt 13.1.0", or why it cannot be used. Opens it, which takes 0.6 s.
Result<std::string> find_cublaslt();
// Begins to open it, without waiting: a model that wants it has it sooner.
void open_cublaslt_soon();
// Returns when it is open, if that has begun, and all of its kernels that were asked for so far are loaded: no step
// waits for them. main() ends with it, however it ends: exit() takes the library apart, and a thread that still opened
// it would crash. Streams wait at their end too, for programs without such a main().
void wait_for_cublaslt();

}  // namespace fathom::cuda
