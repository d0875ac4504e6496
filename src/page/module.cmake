# The page's files, compiled in.
file(GLOB fathom_page_files CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/src/page/*.html" "${CMAKE_SOURCE_DIR}/src/page/*.css"
  "${CMAKE_SOURCE_DIR}/src/page/*.js" "${CMAKE_SOURCE_DIR}/src/page/*.svg")
set(fathom_page_source "${CMAKE_BINARY_DIR}/generated/page/page_files.cc")
add_custom_command(OUTPUT "${fathom_page_source}"
  COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${fathom_page_source}" "-DFILES=${fathom_page_files}"
          -P "${CMAKE_SOURCE_DIR}/src/page/embed.cmake"
  DEPENDS ${fathom_page_files} "${CMAKE_SOURCE_DIR}/src/page/embed.cmake"
  COMMENT "Embedding the page" VERBATIM)
target_sources(fathom_page PRIVATE "${fathom_page_source}")
