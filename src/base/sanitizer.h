// REPRISE_ASAN and REPRISE_TSAN: whether this is compiled for the address or the thread sanitizer, which GCC and clang
// tell in different ways.
#pragma once

#ifdef __has_feature
#define REPRISE_HAS_FEATURE(x) __has_feature(x)
#else
#define REPRISE_HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || REPRISE_HAS_FEATURE(address_sanitizer)
#define REPRISE_ASAN 1
#else
#define REPRISE_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || REPRISE_HAS_FEATURE(thread_sanitizer)
#define REPRISE_TSAN 1
#else
#define REPRISE_TSAN 0
#endif
