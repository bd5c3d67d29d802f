#include "base/hooks.h"

namespace reprise {
namespace {

thread_local Hooks* t_hooks = nullptr;

}  // namespace

Hooks* current_hooks() { return t_hooks; }
HookScope::HookScope(Hooks* hooks) : before_(std::exchange(t_hooks, hooks)) {}
HookScope::~HookScope() { t_hooks = before_; }

}  // namespace reprise
