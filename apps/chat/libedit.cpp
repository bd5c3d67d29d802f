#include "chat/libedit.h"

#include <dlfcn.h>

namespace reprise::apps {
namespace {

constexpr const char* kLibrary = "libedit.so.2";

template <typename Function>
bool find_function(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  return out != nullptr;
}

}  // namespace

Result<Libedit> Libedit::open() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) return error(Code::NotFound, "{} (Debian: apt install libedit2)", ::dlerror());
  Libedit l{};
  const bool all = find_function(library, "el_init", l.init) && find_function(library, "el_end", l.end) &&
                   find_function(library, "el_wset", l.set) && find_function(library, "el_wget", l.get) &&
                   find_function(library, "el_wgets", l.gets) && find_function(library, "el_wgetc", l.getc) &&
                   find_function(library, "el_wpush", l.push) && find_function(library, "el_wline", l.line) &&
                   find_function(library, "el_cursor", l.cursor) && find_function(library, "el_winsertstr", l.insert) &&
                   find_function(library, "el_deletestr", l.delete_before) &&
                   find_function(library, "el_resize", l.resize);
  if (!all) return error(Code::Unsupported, "{} is too old: {}", kLibrary, ::dlerror());
  return l;
}

}  // namespace reprise::apps
