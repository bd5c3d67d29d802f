#include "text/jinja/args.h"

#include "text/jinja/access.h"
#include "text/jinja/compare.h"

namespace reprise::text::jinja {

Bound::Bound(std::string_view callee, const CallArgs& args, std::initializer_list<std::string_view> names,
             size_t required)
    : callee_(callee), names_(names), slots_(names.size(), nullptr) {
  if (args.positional.size() > slots_.size())
    fail("{}() takes at most {} arguments, got {}", callee_, slots_.size(), args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) slots_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    if (i == names_.size()) fail("{}() has no parameter '{}'", callee_, name);
    if (slots_[i]) fail("{}() got '{}' twice", callee_, name);
    slots_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!slots_[i]) fail("{}() needs the argument '{}'", callee_, names_[i]);
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (!slots_[i]) return otherwise;
  return require_integer(*slots_[i], fmt::format("'{}' of {}()", names_[i], callee_));
}

bool Bound::truth(size_t i, bool otherwise) const { return slots_[i] ? jinja::truth(*slots_[i]) : otherwise; }

const std::string& Bound::text(size_t i) const {
  return require_text(*slots_[i], fmt::format("'{}' of {}()", names_[i], callee_));
}

}  // namespace reprise::text::jinja
