// Python's two ways to format text: "%s of %d" % (...) and "{} of {}".format(...), as far as templates use them.
#pragma once

#include <string_view>

#include "text/jinja/args.h"
#include "text/jinja/runtime.h"

namespace reprise::text::jinja {

Value percent_format(Runtime& rt, const Value& format, const Value& args);
Value brace_format(Runtime& rt, const Value& format, const CallArgs& args);

}  // namespace reprise::text::jinja
