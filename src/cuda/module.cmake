# The CUDA backend where there is a toolkit, and otherwise what says that there is none. nvcc compiles all of it.
if(FATHOM_HAS_CUDA)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/cuda/*.cu")
  target_sources(fathom_cuda PRIVATE ${kernels})
  set_source_files_properties("${CMAKE_SOURCE_DIR}/src/cuda/absent/backend.cc" PROPERTIES HEADER_FILE_ONLY ON)
  target_compile_options(fathom_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -lineinfo
    -Xcompiler=-Wall,-Wextra>)
  # The sampler repeats float32 operations one by one (ops/sample_weight.h): none may be fused with the next.
  file(GLOB exact CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/cuda/sampling/*.cu")
  set_source_files_properties(${exact} PROPERTIES COMPILE_OPTIONS "-fmad=false")
  set_target_properties(fathom_cuda PROPERTIES CUDA_SEPARABLE_COMPILATION OFF)
endif()
