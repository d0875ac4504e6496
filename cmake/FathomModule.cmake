# fathom_module(NAME): one static library from src/NAME/**/*.cc, and *.cu where there is an nvcc, without the folders
# that are modules themselves, linked against the modules that its row of src/modules.txt lists. The table is the only
# place where dependencies are written. The library of cuda/gemm is fathom_cuda_gemm. The modules of apps/ lie beside
# src/, and a main.cc of theirs is in no library.

file(STRINGS "${CMAKE_SOURCE_DIR}/src/modules.txt" FATHOM_MODULE_ROWS REGEX "^[a-z_/]+:")
set(FATHOM_MODULES ${FATHOM_MODULE_ROWS})
list(TRANSFORM FATHOM_MODULES REPLACE ":.*" "")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/modules.txt")

# A warning stops the build where the compiler is one that every change is built with. Others warn of other things, some
# of them false (gcc 14: maybe-uninitialized), and whoever installs with them cannot mend it. A sanitizer's
# instrumentation brings false ones, too.
set(FATHOM_WARNINGS_STOP FALSE)
if(NOT FATHOM_SANITIZE AND (
   (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)))
  set(FATHOM_WARNINGS_STOP TRUE)
endif()

# fathom_warnings(TARGET): the warnings that all of our own code is held to.
function(fathom_warnings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion>)
  if(FATHOM_WARNINGS_STOP)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
  # gcc 12 sees overlapping copies in every inlined "literal" + std::string (its bug 105329).
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A file that another includes looks like a header to gcc, and what it inlines of a neighbour it has not followed
    # far enough to see set. The debug preset compiles each file alone and keeps both warnings.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage -Wno-maybe-uninitialized>)
  endif()
endfunction()

# fathom_libraries(MODULES OUT): the libraries of modules.
function(fathom_libraries modules out)
  list(TRANSFORM modules REPLACE "/" "_")
  list(TRANSFORM modules PREPEND fathom_)
  set(${out} ${modules} PARENT_SCOPE)
endfunction()

# fathom_module_root(NAME OUT): where a module's folder lies, and what its includes are relative to.
function(fathom_module_root name out)
  if(name MATCHES "^apps(/|$)")
    set(${out} "${CMAKE_SOURCE_DIR}" PARENT_SCOPE)
  else()
    set(${out} "${CMAKE_SOURCE_DIR}/src" PARENT_SCOPE)
  endif()
endfunction()

# fathom_module_sources(NAME OUT): what the library of a module is compiled from.
function(fathom_module_sources name out)
  fathom_module_root(${name} root)
  set(patterns "${root}/${name}/*.cc")
  if(FATHOM_HAS_CUDA)
    list(APPEND patterns "${root}/${name}/*.cu")
  endif()
  file(GLOB_RECURSE sources RELATIVE "${root}" CONFIGURE_DEPENDS ${patterns})
  foreach(module IN LISTS FATHOM_MODULES)
    if(module MATCHES "^${name}/")
      list(FILTER sources EXCLUDE REGEX "^${module}/")
    endif()
  endforeach()
  list(FILTER sources EXCLUDE REGEX "^apps/(.*/)?main\\.cc$")
  list(TRANSFORM sources PREPEND "${root}/")
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# Modules that wait for others most of the time: under a sanitizer it takes longer to optimise them than to run them.
set(FATHOM_WAITING_MODULES "^(http|client|nodes|kv_events|metrics|serve|answer|page|config|(api|comm|cuda)(/.*)?)$")

function(fathom_module name)
  fathom_libraries(${name} library)
  fathom_module_root(${name} root)
  fathom_module_sources(${name} sources)
  if(sources)
    add_library(${library} STATIC ${sources})
    set(to_all PUBLIC)
    fathom_warnings(${library})
    if(name MATCHES "^apps(/|$)")
      # Flags, tables and loops over calls: the time goes by in the modules of src/.
      fathom_quick_build(${library})
    else()
      if(FATHOM_SANITIZE AND name MATCHES "${FATHOM_WAITING_MODULES}")
        target_compile_options(${library} PRIVATE -O0)
      endif()
      # What a running server may not do and a test may: base/json.h.
      target_compile_definitions(${library} PRIVATE FATHOM_IN_MODULE)
    endif()
    target_compile_options(${library} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra>)
  else()  # headers alone, or kernels where there is no nvcc
    add_library(${library} INTERFACE)
    set(to_all INTERFACE)
  endif()
  target_include_directories(${library} ${to_all} "${root}")
  list(FILTER FATHOM_MODULE_ROWS INCLUDE REGEX "^${name}:")
  string(REGEX REPLACE "^.*:" "" deps "${FATHOM_MODULE_ROWS}")
  separate_arguments(deps UNIX_COMMAND "${deps}")
  if(NOT name STREQUAL "base")
    list(APPEND deps base)
  endif()
  fathom_libraries("${deps}" libraries)
  target_link_libraries(${library} ${to_all} ${libraries})
endfunction()

# fathom_quick_build(TARGET): for tests and the command line, whose compile time counts for more than their run time.
# What runs often is in the modules, which are optimised as the preset says. FATHOM_TEST_FILES_AT_ONCE files are
# compiled at a time, because most of the time goes to headers that their neighbours read too; so names in unnamed
# namespaces must differ within a target, of overloads too.
function(fathom_quick_build target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${FATHOM_TEST_FILES_AT_ONCE})
  if(FATHOM_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    # With -Og gcc takes for unset what it has not followed far enough to see set.
    target_compile_options(${target} PRIVATE -Og -Wno-maybe-uninitialized)
  endif()
endfunction()

# fathom_test(NAME): one GoogleTest program from tests/NAME/**/*.cc linked against the given modules.
#   fathom_test(text MODULES text)            -> target test_text, ctest label cpu
# Its files are compiled at once as fathom_quick_build() says; the sanitizers' presets compile a module as one.
function(fathom_test name)
  cmake_parse_arguments(arg "" "" "MODULES;LIBRARIES;LABELS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/${name}/*.cc")
  if(NOT sources)
    return()
  endif()
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  fathom_warnings(test_${name})
  fathom_quick_build(test_${name})
  fathom_libraries("${arg_MODULES}" libraries)
  target_link_libraries(test_${name} PRIVATE ${libraries} ${arg_LIBRARIES} fathom_source_tree GTest::gmock GTest::gtest GTest::gtest_main)
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  include(GoogleTest)
  # A parameter is named by its name generator: printed values change with addresses and hold any character.
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
endfunction()

# fathom_python_tests(FOLDER [PROGRAM target]): one ctest per tests/FOLDER/*_test.py, run by unittest. The
# environment variable FATHOM_BUILD_DIR names the build, and with PROGRAM, FATHOM_PROGRAM that program. A test
# that exits with 77 was skipped; it says why (tools/run_tests.py). The time is for one processor that others keep
# busy.
function(fathom_python_tests folder)
  cmake_parse_arguments(arg "" "PROGRAM" "" ${ARGN})
  file(GLOB scripts CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.py")
  foreach(script IN LISTS scripts)
    get_filename_component(name "${script}" NAME_WE)
    string(REGEX REPLACE "_test$" "" name "${name}")
    string(REPLACE "/" "." prefix "${folder}")
    add_test(NAME ${prefix}.${name} COMMAND ${Python3_EXECUTABLE} -B "${script}")
    set(environment "FATHOM_BUILD_DIR=${CMAKE_BINARY_DIR}")
    if(arg_PROGRAM)
      list(APPEND environment "FATHOM_PROGRAM=$<TARGET_FILE:${arg_PROGRAM}>")
    endif()
    # The longest are among them: ctest begins with them, so that none runs alone at the end.
    set_tests_properties(${prefix}.${name} PROPERTIES LABELS cpu TIMEOUT 1800 SKIP_RETURN_CODE 77 COST 100
      ENVIRONMENT "${environment}")
  endforeach()
endfunction()
