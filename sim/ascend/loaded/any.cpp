// The library that has every symbol: the version is what ASCEND_SIM_CANN says.
#include "ascend/loaded/loaded.h"

namespace ascend_sim {
const char* const kOnlyVersion = nullptr;
}
