#include "chat/libedit.h"

#include <dlfcn.h>

namespace reprise::apps {
namespace {

constexpr const char* kLibrary = "libedit.so.2";

template <typename Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  return out != nullptr;
}

}  // namespace

Result<Libedit> Libedit::open() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) return error(Code::NotFound, "{} is not there (Debian: apt install libedit2)", kLibrary);
  Libedit l{};
  const bool all = find(library, "el_init", l.init) && find(library, "el_end", l.end) &&
                   find(library, "el_wset", l.set) && find(library, "el_wget", l.get) &&
                   find(library, "el_wgets", l.gets) && find(library, "el_wgetc", l.getc) &&
                   find(library, "el_wpush", l.push) && find(library, "el_wline", l.line) &&
                   find(library, "el_cursor", l.cursor) && find(library, "el_winsertstr", l.insert) &&
                   find(library, "el_deletestr", l.delete_before) && find(library, "el_resize", l.resize);
  if (!all) return error(Code::Unsupported, "{} is too old: {}", kLibrary, ::dlerror());
  return l;
}

}  // namespace reprise::apps
