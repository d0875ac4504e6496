# Compiles through ccache where there is one that works: one whose folder cannot be written, as with a user
# who has no home, fails every compile.

find_program(FATHOM_CCACHE ccache)
if(FATHOM_CCACHE)
  set(probe "${CMAKE_BINARY_DIR}/ccache_probe.cc")
  file(WRITE "${probe}" "int ccache_probe();\n")
  execute_process(COMMAND "${FATHOM_CCACHE}" "${CMAKE_CXX_COMPILER}" -c "${probe}" -o "${probe}.o"
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE why)
  if(status EQUAL 0)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${FATHOM_CCACHE}")
  else()
    string(STRIP "${why}" why)
    message(NOTICE "Compiling without ccache, which does not work here: ${why}")
  endif()
endif()
