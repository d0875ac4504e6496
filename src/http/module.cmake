# Boost is used header-only (Asio for sockets, timers and TLS; Beast's parser as the oracle of the tests); only .cc
# files and *_internal headers of this module include it.
if(TARGET fathom_http)
  target_link_libraries(fathom_http PUBLIC OpenSSL::SSL OpenSSL::Crypto PRIVATE Boost::headers)
  # The parts of Asio that are deprecated or need a linked Boost library stay out.
  target_compile_definitions(fathom_http PUBLIC
    BOOST_ASIO_NO_DEPRECATED BOOST_ERROR_CODE_HEADER_ONLY BOOST_BEAST_USE_STD_STRING_VIEW)
endif()
