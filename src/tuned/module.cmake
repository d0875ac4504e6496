# The tuned files, compiled in: a folder for each device.
file(GLOB fathom_tuned_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/tuned/*/*.json")
string(MD5 fathom_tuned_list "${fathom_tuned_files}")  # so that a file that is gone makes them anew
set(fathom_tuned_source "${CMAKE_BINARY_DIR}/generated/tuned/shipped_files.cc")
add_custom_command(OUTPUT "${fathom_tuned_source}"
  COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${fathom_tuned_source}" "-DFOLDER=${CMAKE_SOURCE_DIR}/src/tuned"
          "-DLIST=${fathom_tuned_list}"
          -P "${CMAKE_SOURCE_DIR}/src/tuned/embed.cmake"
  DEPENDS ${fathom_tuned_files} "${CMAKE_SOURCE_DIR}/src/tuned/embed.cmake"
  COMMENT "Embedding the tuned files" VERBATIM)
target_sources(fathom_tuned PRIVATE "${fathom_tuned_source}")
