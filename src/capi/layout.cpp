// The layout of the structures that programs fill, as versions of the interface were closed with it: members are only
// ever added behind the last. Of ABI 1, which is open until the first release.
#include <cstddef>

#include <reprise.h>

namespace {

// Where pointers have eight bytes: on both machines that there are kernels for.
static_assert(sizeof(void*) == 8);
static_assert(sizeof(reprise_hooks) == 48 && offsetof(reprise_hooks, event) == 40);
static_assert(sizeof(reprise_sampling) == 176 && offsetof(reprise_sampling, form_text) == 160);
static_assert(sizeof(reprise_request) == 152 && offsetof(reprise_request, context) == 144);
static_assert(offsetof(reprise_event, total_s) == 200);

}  // namespace
