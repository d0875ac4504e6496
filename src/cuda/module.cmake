# The CUDA backend where there is a toolkit, and otherwise what says that there is none.
if(FATHOM_HAS_CUDA)
  set_source_files_properties("${CMAKE_SOURCE_DIR}/src/cuda/absent/backend.cc" PROPERTIES HEADER_FILE_ONLY ON)
  # The sampler repeats float32 operations one by one (ops/sample_weight.h): none may be fused with the next.
  file(GLOB exact CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/cuda/sampling/*.cu")
  set_source_files_properties(${exact} PROPERTIES COMPILE_OPTIONS "-fmad=false")
endif()
