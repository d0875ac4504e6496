# The page's files, compiled in.
file(GLOB fathom_page_files CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/src/server/page/*.html" "${CMAKE_SOURCE_DIR}/src/server/page/*.css"
  "${CMAKE_SOURCE_DIR}/src/server/page/*.js" "${CMAKE_SOURCE_DIR}/src/server/page/*.svg")
set(fathom_page_source "${CMAKE_BINARY_DIR}/generated/server/page_files.cc")
add_custom_command(OUTPUT "${fathom_page_source}"
  COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${fathom_page_source}" "-DFILES=${fathom_page_files}"
          -P "${CMAKE_SOURCE_DIR}/src/server/page/embed.cmake"
  DEPENDS ${fathom_page_files} "${CMAKE_SOURCE_DIR}/src/server/page/embed.cmake"
  COMMENT "Embedding the page" VERBATIM)
target_sources(fathom_server PRIVATE "${fathom_page_source}")
