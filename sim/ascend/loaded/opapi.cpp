// A library of operators by one of its names: it has no code of its own but tells that it is there. The symbols come
// from the library it depends on, where dlsym finds them.
#include "ascend/loaded/loaded.h"

namespace {

const struct Told {
  Told() { ascendSimLoaded(ASCEND_SIM_PARTS, 1); }
  ~Told() { ascendSimLoaded(ASCEND_SIM_PARTS, -1); }
} told;

}  // namespace
