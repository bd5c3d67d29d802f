// A temporary folder that goes with its test, and settings of a hub that keeps its models there.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "hub/settings.h"

namespace reprise::hub {

class TestFolder {
 public:
  TestFolder() {
    static int count = 0;
    path_ = std::filesystem::path(testing::TempDir()) / fmt::format("reprise_hub_{}_{}", ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
  bool has(const std::string& name) const { return std::filesystem::exists(path_ / name); }

 private:
  std::filesystem::path path_;
};

inline HubSettings test_settings(const std::string& url, const std::string& cache,
                                 HubKind kind = HubKind::HuggingFace) {
  HubSettings s;
  s.kind = kind;
  s.endpoint = url;
  s.endpoint_from = kind == HubKind::ModelScope ? "MODELSCOPE_ENDPOINT" : "HF_ENDPOINT";
  s.cache = cache;
  s.stall_seconds = 2;
  s.first_wait = std::chrono::milliseconds(1);
  return s;
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace reprise::hub
