# Writes headers as one C++ source, so that NVRTC gets them where there is no source tree:
#   cmake -DOUTPUT=device_headers.cc -DROOT=src -DFILES="cuda/ptx/pdl.cuh;..." -P embed.cmake

set(rows "")
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" text)
  string(APPEND rows "    {\"${file}\", R\"fathom(${text})fathom\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Written by src/cuda/jit/embed.cmake.
#include \"cuda/jit/headers.h\"

namespace fathom::cuda {

std::span<const jit::Header> embedded_headers() {
  static const jit::Header headers[] = {
${rows}  };
  return headers;
}

}  // namespace fathom::cuda
")
