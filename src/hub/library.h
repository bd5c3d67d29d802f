// SharedLibrary: a shared library that is opened when it is first needed, so that the program starts where it is
// missing. It stays open until the program ends. A plain value; any thread.
#pragma once

#include <initializer_list>
#include <string_view>

#include "base/status.h"

namespace reprise::hub {

class SharedLibrary {
 public:
  // The first of the names that opens. The error says what it is needed for and which package to install.
  static Result<SharedLibrary> open(std::initializer_list<const char*> names, std::string_view needed_for,
                                    std::string_view package);

  // Sets a function pointer; an error when the library has no such symbol.
  template <typename Function>
  Status find(const char* symbol, Function*& function) const {
    ASSIGN_OR_RETURN(void* const address, find_address(symbol));
    function = reinterpret_cast<Function*>(address);
    return Status::ok();
  }

 private:
  SharedLibrary(void* handle, const char* name) : handle_(handle), name_(name) {}
  Result<void*> find_address(const char* symbol) const;

  void* handle_;
  const char* name_;
};

}  // namespace reprise::hub
