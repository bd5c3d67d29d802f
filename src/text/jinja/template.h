// Template: a Jinja template compiled once. Immutable after compile(); render() may run on any number of threads at a
// time, each render with limits of its own. This is the border of the folder: inside errors are thrown, here they
// become a Status that names the line of the template.
//
// What chat templates use of Jinja2 is here: the union of the published templates in tests/data/chat_templates and the
// filters and methods that other engines' users rely on. Not here, on purpose, and an error by name: formatting of text
// (`%`, format, center, ljust, rjust, zfill, expandtabs, truncate, wordcount, urlencode, filesizeformat), the filters
// batch, slice and groupby, partition, index, swapcase and casefold, the rarer tests of characters, inheritance and
// includes, autoescaping.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/jinja/limits.h"

namespace reprise::text::jinja {

struct Tree;

// Names and values a render can see; the last of equal names wins. The values must outlive the render.
using Variables = std::vector<std::pair<std::string_view, const OrderedJson*>>;

class Template {
 public:
  // With the white space rules of HF's chat templates (trim_blocks, lstrip_blocks).
  static Result<Template> compile(std::string_view source);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // `now` is what strftime_now() prints.
  Result<std::string> render(const Variables& variables, const std::tm& now, const Limits& limits = {}) const;

 private:
  explicit Template(std::unique_ptr<const Tree> tree);
  std::unique_ptr<const Tree> tree_;
};

}  // namespace reprise::text::jinja
