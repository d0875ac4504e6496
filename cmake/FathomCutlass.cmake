# CUTLASS's headers, for bench_cutlass alone: the wheel on PyPI, by its digest.
execute_process(
  COMMAND python3 -m pip download --quiet --no-deps --require-hashes --dest "${CMAKE_BINARY_DIR}/cutlass"
    --requirement "${CMAKE_SOURCE_DIR}/bench/cuda/requirements.txt"
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB wheel "${CMAKE_BINARY_DIR}/cutlass/nvidia_cutlass-*.whl")
file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${CMAKE_BINARY_DIR}/cutlass")
set(FATHOM_CUTLASS "${CMAKE_BINARY_DIR}/cutlass/cutlass_library/source")
