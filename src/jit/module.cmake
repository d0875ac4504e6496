# SHA-256. NVRTC is opened at run time, and needs no header.
target_link_libraries(fathom_jit PRIVATE OpenSSL::Crypto)
