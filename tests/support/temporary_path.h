// temporary_path: a place for a file or folder of this process alone: tests run side by side. Any thread.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace reprise::testing_support {

inline std::string temporary_path(const std::string& name) {
  return testing::TempDir() + name + "." + std::to_string(::getpid());
}

}  // namespace reprise::testing_support
