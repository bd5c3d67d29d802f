#include "capi/failure.h"

#include "settings/setting.h"

namespace reprise::capi {
namespace {

static_assert(static_cast<int>(Code::Invalid) == REPRISE_INVALID && static_cast<int>(Code::Busy) == REPRISE_BUSY &&
              static_cast<int>(Code::Internal) == REPRISE_INTERNAL);

// For entries that have no engine: they say nothing.
Hooks* silence() {
  static Hooks none;
  return &none;
}

Failure thrown(const char* what) { return Status(Code::Internal, fmt::format("an exception: {}", what)); }

}  // namespace

Failure::Failure(Status s) : status(std::move(s)) {
  if (status.is_ok()) return;
  auto named = settings::named_in(status.message());
  if (!named.empty()) place = std::move(named.front());
}

reprise_error error_of(const Failure& f) {
  return {static_cast<reprise_code>(f.status.code()), f.status.message(), f.place};
}

reprise_code guarded(Hooks* hooks, reprise_error** out, const std::function<Failure()>& work) noexcept {
  if (out) *out = nullptr;
  const HookScope scope(hooks ? hooks : silence());
  try {
    Failure f;
    try {
      f = work();
    } catch (const std::bad_alloc&) {
      f = Status(Code::OutOfMemory, "there is no memory left");
    } catch (const std::exception& e) {
      f = thrown(e.what());
    } catch (...) {
      f = thrown("of no known kind");
    }
    if (out && !f.is_ok()) *out = new reprise_error(error_of(f));
    return static_cast<reprise_code>(f.status.code());
  } catch (...) {
    return REPRISE_OUT_OF_MEMORY;  // not even the words for it
  }
}

Failure give(reprise_blob** out, std::string bytes) {
  if (!out) return Failure(invalid("the place for the result is NULL"), "out");
  *out = new reprise_blob{std::move(bytes)};
  return {};
}

}  // namespace reprise::capi
