# The page's files, compiled in.
file(GLOB fathom_page_files CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/src/page/*.html" "${CMAKE_SOURCE_DIR}/src/page/*.css"
  "${CMAKE_SOURCE_DIR}/src/page/*.js" "${CMAKE_SOURCE_DIR}/src/page/*.svg")
# Reads the formulas of answers: KaTeX of Debian's libjs-katex, with its licence. Where either is missing the page has a
# file that says so, and formulas stay text.
find_file(FATHOM_KATEX katex.js PATHS /usr/share/javascript/katex NO_DEFAULT_PATH)
find_file(FATHOM_KATEX_LICENCE copyright PATHS /usr/share/doc/libjs-katex NO_DEFAULT_PATH)
mark_as_advanced(FATHOM_KATEX FATHOM_KATEX_LICENCE)
set(fathom_katex "${CMAKE_BINARY_DIR}/generated/page/katex.js")
if(FATHOM_KATEX AND FATHOM_KATEX_LICENCE)
  configure_file("${FATHOM_KATEX}" "${fathom_katex}" COPYONLY)
  configure_file("${FATHOM_KATEX_LICENCE}" "${CMAKE_BINARY_DIR}/generated/page/katex-licence.txt" COPYONLY)
  list(APPEND fathom_page_files "${CMAKE_BINARY_DIR}/generated/page/katex-licence.txt")
else()
  message(STATUS "No KaTeX (libjs-katex): the page shows formulas as text")
  file(CONFIGURE OUTPUT "${fathom_katex}" CONTENT "// This program was built without KaTeX.\n")
endif()
list(APPEND fathom_page_files "${fathom_katex}")
set(fathom_page_source "${CMAKE_BINARY_DIR}/generated/page/page_files.cc")
add_custom_command(OUTPUT "${fathom_page_source}"
  COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${fathom_page_source}" "-DFILES=${fathom_page_files}"
          -P "${CMAKE_SOURCE_DIR}/src/page/embed.cmake"
  DEPENDS ${fathom_page_files} "${CMAKE_SOURCE_DIR}/src/page/embed.cmake"
  COMMENT "Embedding the page" VERBATIM)
target_sources(fathom_page PRIVATE "${fathom_page_source}")
