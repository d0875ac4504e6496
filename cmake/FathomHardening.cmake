# Hardening that costs little stays on in every build; sanitizers replace the part they conflict with.

include(CheckCXXCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

# Programs carry their own C++ run time, so that they run on systems with an older one. Not where it comes as a shared
# library alone, and not beside sanitizers, which bring theirs.
include(CheckCXXSourceCompiles)
if(NOT FATHOM_SANITIZE)
  set(CMAKE_REQUIRED_LINK_OPTIONS -static-libstdc++)
  check_cxx_source_compiles("#include <string>\nint main(int n, char** v) { return int(std::string(v[n - 1]).size()); }"
                            FATHOM_HAS_STATIC_LIBSTDCXX)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
endif()

add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
# What nvcc hands to its host compiler counts as much as the other objects.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>
                    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fstack-protector-strong>)
foreach(flag IN ITEMS -fstack-clash-protection -fcf-protection)
  string(MAKE_C_IDENTIFIER "FATHOM_HAS${flag}" has_flag)
  check_cxx_compiler_flag(${flag} ${has_flag})
  if(${has_flag})
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${flag}>
                        $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${flag}>)
  endif()
endforeach()
add_link_options(-Wl,-z,relro,-z,now)

if(FATHOM_SANITIZE)
  add_compile_options(-fsanitize=${FATHOM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FATHOM_SANITIZE})
  # These checks of UBSan cost a quarter of the compile time and find what AddressSanitizer stops anyway
  # (null, outside of an object); x86 and the kernels read unaligned on purpose. The fuzzers keep them all.
  if(FATHOM_SANITIZE MATCHES "undefined" AND NOT FATHOM_SANITIZE MATCHES "fuzzer")
    add_compile_options(
      -fno-sanitize=null,vptr,alignment,object-size,nonnull-attribute,returns-nonnull-attribute)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # A library that is opened at run time takes pointers to structs of its own, for which we have names of ours.
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  # Level 3 needs GCC 12 or clang 15 with glibc 2.34; older ones take it as level 2. Some distributions'
  # compilers define it already.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE>
                      $<$<COMPILE_LANGUAGE:CXX>:-D_FORTIFY_SOURCE=3>)
endif()
