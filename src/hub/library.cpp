#include "hub/library.h"

#include <dlfcn.h>

namespace reprise::hub {

Result<SharedLibrary> SharedLibrary::open(std::initializer_list<const char*> names, std::string_view needed_for,
                                          std::string_view package) {
  for (const char* name : names)
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle, name);
  return error(Code::Unsupported, "{} is missing, which {}; install it with: apt-get install {}", *names.begin(),
               needed_for, package);
}

Result<void*> SharedLibrary::find_address(const char* symbol) const {
  if (void* address = ::dlsym(handle_, symbol)) return address;
  return error(Code::Unsupported, "{} has no {}; a newer one is needed", name_, symbol);
}

}  // namespace reprise::hub
