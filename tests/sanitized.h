#pragma once
// Whether this is a sanitizer's build. Its programs are some twenty times slower, and its allocator ends the program
// where there is no memory instead of saying so.

namespace fathom {

#if defined(__has_feature)  // clang
inline constexpr bool kIsSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace fathom
