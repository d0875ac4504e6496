# Asio and Beast's parser, header-only as in http, whose definitions come with it; only .cc files and *_internal
# headers of this module include them.
if(TARGET fathom_client)
  target_link_libraries(fathom_client PRIVATE Boost::headers)
endif()
