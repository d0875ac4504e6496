# What `cmake --install build/release --prefix DIR` puts there: the programs, the demo model and the published
# configurations, the manual page, completions, what deploys and the documents. tools/package/build.sh makes packages
# of it.
include(GNUInstallDirs)

install(TARGETS fathom fathom-bench RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(DIRECTORY models/demo models/configs DESTINATION "${CMAKE_INSTALL_DATADIR}/fathom/models")
install(DIRECTORY deploy/ DESTINATION "${CMAKE_INSTALL_DATADIR}/fathom/deploy")
install(FILES README.md CHANGELOG.md LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs" FILES_MATCHING PATTERN "*.md" PATTERN "images" EXCLUDE)

# Written from what the programs say of themselves, so they are run.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  install(CODE "
    execute_process(
      COMMAND \"${Python3_EXECUTABLE}\" -B \"${CMAKE_SOURCE_DIR}/tools/package/help_files.py\"
              --prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\"
              \"$<TARGET_FILE:fathom>\" \"$<TARGET_FILE:fathom-bench>\"
      COMMAND_ERROR_IS_FATAL ANY)")
endif()
