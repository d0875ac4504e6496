# Flags of the kernel files: each is compiled for one instruction set and entered only after asking the
# processor. Products and sums are written as explicit fused operations where they are meant, so the
# compiler must not fuse others: a tile of one row and a tile of six would then differ in their bits.
foreach(library IN ITEMS fathom_cpu fathom_cpu_reference fathom_cpu_integer fathom_cpu_isa
        fathom_cpu_fast)
  target_compile_options(${library} PRIVATE -ffp-contract=off)
endforeach()
set(fathom_isa "${CMAKE_SOURCE_DIR}/src/cpu/isa")
if(FATHOM_SANITIZE)
  # UBSan's checks in the fully inlined tiles take minutes to compile; their callers keep them, and
  # AddressSanitizer and ThreadSanitizer watch the tiles themselves.
  set(fathom_kernel_flags -O1 -fno-sanitize=undefined)
  # The same tiles as avx2's, in registers twice as wide, take clang five minutes with AddressSanitizer's checks: avx2
  # has them, and is what the sanitizers' tests run on a processor that has both. So nothing of AVX-512 runs there, and
  # it is compiled as fast as it can be.
  set(fathom_wide_kernel_flags -O0 -fno-sanitize=all)
else()
  set(fathom_kernel_flags -O3)
  set(fathom_wide_kernel_flags -O3)
endif()
set(fathom_integer_isa "${CMAKE_SOURCE_DIR}/src/cpu/integer/isa")
set_source_files_properties("${fathom_isa}/portable.cc" "${fathom_integer_isa}/portable.cc" PROPERTIES COMPILE_OPTIONS
  "${fathom_kernel_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties("${fathom_isa}/avx2.cc" "${fathom_integer_isa}/avx2.cc" PROPERTIES COMPILE_OPTIONS
    "${fathom_kernel_flags};-mavx2;-mfma;-mf16c")
  set_source_files_properties("${fathom_isa}/avx512.cc" "${fathom_integer_isa}/avx512.cc" PROPERTIES COMPILE_OPTIONS
    "${fathom_wide_kernel_flags};-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
  set_source_files_properties("${fathom_isa}/avx512_bf16.cc" PROPERTIES COMPILE_OPTIONS
    "${fathom_wide_kernel_flags};-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vbmi;-mavx512bf16;-mprefer-vector-width=512")
  set_source_files_properties("${fathom_integer_isa}/avx512_vnni.cc" PROPERTIES COMPILE_OPTIONS
    "${fathom_wide_kernel_flags};-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mprefer-vector-width=512")
  set_source_files_properties("${fathom_isa}/amx.cc" PROPERTIES COMPILE_OPTIONS
    "${fathom_wide_kernel_flags};-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vbmi;-mavx512bf16;-mamx-tile;-mamx-bf16;-mamx-int8;-mprefer-vector-width=512")
endif()
