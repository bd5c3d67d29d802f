// main() of the test programs whose tests get one processor each (cmake/house.cmake, RESOURCE_GROUPS): a test stays on
// the one that ctest gave it, with the programs that it starts. Two engines whose threads wait for one another on the
// same two processors take three times as long as side by side. Without `ctest --resource-spec-file`, which ./dev
// gives, a test has all processors.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

namespace {

void stay_on_one_processor() {
  const char* given = std::getenv("CTEST_RESOURCE_GROUP_0_PROCESSORS");  // "id:1,slots:1"
  cpu_set_t allowed, one;
  if (!given || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&one);
  int left = std::atoi(given + 3);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && left-- == 0) CPU_SET(cpu, &one);
  if (CPU_COUNT(&one) == 1) ::sched_setaffinity(0, sizeof one, &one);
}

}  // namespace

int main(int argc, char** argv) {
  stay_on_one_processor();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
