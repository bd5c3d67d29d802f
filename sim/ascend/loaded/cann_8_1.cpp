// The library that lacks the symbols younger than CANN 8.1.RC1 (cann_8_1.map): it is that version and no other.
#include "ascend/loaded/loaded.h"

namespace ascend_sim {
const char* const kOnlyVersion = "8.1";
}
