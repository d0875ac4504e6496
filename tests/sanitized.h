#pragma once
// Whether this is a sanitizer's build. Its programs are some twenty times slower, and its allocator ends the program
// where there is no memory instead of saying so.

#if defined(__has_feature)  // clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FATHOM_IS_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FATHOM_IS_SANITIZED 1
#endif
#ifndef FATHOM_IS_SANITIZED
#define FATHOM_IS_SANITIZED 0
#endif

namespace fathom {

inline constexpr bool kIsSanitized = FATHOM_IS_SANITIZED != 0;

}  // namespace fathom
