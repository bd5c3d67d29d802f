// PastCaches: copies into memory that another processor reads next, by stores that do not keep the lines in this
// processor's caches. A reader then gets the lines from memory, many at a time, and not one by one from these caches.
// Which way is quicker depends on how far apart the processors are; Member::choose_copies() finds out.
//
// What was copied is seen by others once the object has gone. Short copies and the ends of rows go the usual way. A
// value of one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace reprise::ranks {

class PastCaches {
 public:
#if defined(__SSE2__)
  static constexpr bool kAvailable = true;
#else
  static constexpr bool kAvailable = false;
#endif

  // `wanted`: else copies go the usual way. `bytes`: that this thread copies in all; few are as quick in the caches.
  PastCaches(bool wanted, int64_t bytes) : streams_(kAvailable && wanted && bytes >= kFew) {}
  PastCaches(const PastCaches&) = delete;
  PastCaches& operator=(const PastCaches&) = delete;
  ~PastCaches() {
#if defined(__SSE2__)
    if (streams_) _mm_sfence();
#endif
  }

  void copy(uint8_t* to, const uint8_t* from, int64_t bytes) const {
    int64_t done = 0;
#if defined(__SSE2__)
    if (streams_) {
      done = std::min<int64_t>(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) % kLine));
      std::memcpy(to, from, static_cast<size_t>(done));
      // A whole line at a time: part of one would be written to memory by itself.
      for (; done + kLine <= bytes; done += kLine)
        for (int64_t i = done; i < done + kLine; i += kStore)
          _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                           _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
#endif
    std::memcpy(to + done, from + done, static_cast<size_t>(bytes - done));
  }

 private:
  static constexpr int64_t kLine = 64, kStore = 16, kFew = 4096;
  const bool streams_;
};

}  // namespace reprise::ranks
