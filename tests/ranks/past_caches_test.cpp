// Copies past the caches: every length and alignment around a line, with nothing written beside them.
#include "ranks/past_caches.h"

#include <gtest/gtest.h>

#include <vector>

namespace reprise::ranks::past_caches_test {
namespace {

TEST(PastCaches, WritesWhatIsAskedForAndNothingElse) {
  constexpr int64_t kRoom = 512;
  constexpr uint8_t kUntouched = 0xee;
  std::vector<uint8_t> from(kRoom);
  for (int64_t i = 0; i < kRoom; ++i) from[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 7 + 1);
  alignas(64) uint8_t to[kRoom];
  for (const bool wanted : {false, true})
    for (const int64_t begin : {0, 1, 15, 16, 63, 64, 65, 100})
      for (const int64_t source : {0, 1, 33})
        for (const int64_t bytes : {0, 1, 16, 63, 64, 65, 127, 128, 129, 200, 300}) {
          std::fill_n(to, kRoom, kUntouched);
          { PastCaches(wanted, int64_t{1} << 20).copy(to + begin, from.data() + source, bytes); }
          for (int64_t i = 0; i < kRoom; ++i) {
            const bool inside = i >= begin && i < begin + bytes;
            ASSERT_EQ(to[i], inside ? from[static_cast<size_t>(source + i - begin)] : kUntouched)
                << "byte " << i << " of " << bytes << " from " << begin << (wanted ? ", past the caches" : "");
          }
        }
}

}  // namespace
}  // namespace reprise::ranks::past_caches_test
