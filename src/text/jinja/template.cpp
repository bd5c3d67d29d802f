#include "text/jinja/template.h"

#include <new>
#include <stdexcept>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace reprise::text::jinja {

Template::Template(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::compile(std::string_view source) {
  if (source.size() > kMaxTemplateBytes)
    return invalid("template: {} bytes are more than the {} allowed", source.size(), kMaxTemplateBytes);
  try {
    return Template(std::make_unique<const Tree>(Parser(tokenize(source)).parse()));
  } catch (const SyntaxError& error) {
    return invalid("template line {}: {}", error.line, error.message);
  } catch (const std::bad_alloc&) {
    return error(Code::OutOfMemory, "template: not enough memory to compile it");
  }
}

Result<std::string> Template::render(const Variables& variables, const std::tm& now, const Limits& limits) const {
  Runtime rt(limits, now);
  try {
    Interpreter interpreter(rt, *tree_, [&](std::string_view name) -> std::optional<Value> {
      for (auto it = variables.rbegin(); it != variables.rend(); ++it)
        if (it->first == name) return rt.from_json(*it->second);
      return std::nullopt;
    });
    return interpreter.run();
  } catch (const Failure& failure) {
    return invalid("template line {}: {}", rt.line, failure.message);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return error(Code::OutOfMemory, "template line {}: not enough memory to render it", rt.line);
}

}  // namespace reprise::text::jinja
