# HMAC and random bytes. UCX is opened at run time; its header, where there is one, is all that the build needs.
target_link_libraries(fathom_nodes PRIVATE OpenSSL::Crypto)
