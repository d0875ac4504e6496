# The headers that sources for NVRTC include, compiled in: those of src/ that device_headers() has in no other way.
set(fathom_device_headers
  cuda/attention/absorbed_any.cuh cuda/cache/append_row.cuh cuda/cache/kv_row.cuh
  cuda/attention/mla_absorbed.cuh cuda/cache/rope_row.cuh cuda/device/softmax.cuh
  cuda/device/convert.cuh cuda/device/reduce.cuh
  cuda/elementwise/norm_row.cuh cuda/elementwise/vector.cuh
  cuda/ptx/pdl.cuh tensor/scale_block.h)
list(TRANSFORM fathom_device_headers PREPEND "${CMAKE_SOURCE_DIR}/src/" OUTPUT_VARIABLE fathom_device_header_files)
set(fathom_device_header_source "${CMAKE_BINARY_DIR}/generated/cuda/device_headers.cc")
add_custom_command(OUTPUT "${fathom_device_header_source}"
  COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${fathom_device_header_source}" "-DROOT=${CMAKE_SOURCE_DIR}/src"
          "-DFILES=${fathom_device_headers}" -P "${CMAKE_SOURCE_DIR}/src/cuda/jit/embed.cmake"
  DEPENDS ${fathom_device_header_files} "${CMAKE_SOURCE_DIR}/src/cuda/jit/embed.cmake"
  COMMENT "Embedding device headers" VERBATIM)
target_sources(fathom_cuda_jit PRIVATE "${fathom_device_header_source}")
