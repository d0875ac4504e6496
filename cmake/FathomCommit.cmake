# Which commit a program was built from, for what it measures: fathom_commit(TARGET) gives it apps/common/commit.h.
# Asked at every build; the file changes, and is compiled again, only when the answer does.

if(NOT FATHOM_COMMIT_FILE)
  function(fathom_commit target)
    set(file "${CMAKE_BINARY_DIR}/commit.cc")
    add_custom_target(fathom_commit_file BYPRODUCTS "${file}"
      COMMAND "${CMAKE_COMMAND}" -D "FATHOM_COMMIT_FILE=${file}" -D "SOURCE_DIR=${CMAKE_SOURCE_DIR}"
              -D "GIVEN=${FATHOM_COMMIT}" -P "${CMAKE_SOURCE_DIR}/cmake/FathomCommit.cmake" COMMENT "")
    target_sources(${target} PRIVATE "${file}")
    add_dependencies(${target} fathom_commit_file)
  endfunction()
  return()
endif()

# As a script. A tree that lies in another repository, or in none, has no commit but that of -DFATHOM_COMMIT=.
set(commit unknown)
if(GIVEN)
  set(commit "${GIVEN}")
endif()
execute_process(COMMAND git rev-parse --show-toplevel WORKING_DIRECTORY "${SOURCE_DIR}"
                OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
file(REAL_PATH "${SOURCE_DIR}" source)
if(NOT GIVEN AND status EQUAL 0 AND top STREQUAL source)
  execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY "${SOURCE_DIR}"
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY "${SOURCE_DIR}"
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(status EQUAL 0)
    set(commit "${head}")
    if(changes)
      string(APPEND commit " with changes")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${FATHOM_COMMIT_FILE}" @ONLY CONTENT [[
// Written by cmake/FathomCommit.cmake.
#include "apps/common/commit.h"

namespace fathom::apps {

const char* built_from() { return "@commit@"; }

}  // namespace fathom::apps
]])
