// Folder: a temporary folder that goes with the test; and what tests say of files and texts. Any thread.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/status.h"

namespace reprise::testing_support {

class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = std::filesystem::path(testing::TempDir()) / fmt::format("reprise_tests_{}_{}", ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  void write(const std::string& name, const std::string& content) const { std::ofstream(path_ / name) << content; }

 private:
  std::filesystem::path path_;
};

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace reprise::testing_support
