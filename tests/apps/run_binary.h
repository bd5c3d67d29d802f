// run_binary: the program as a person runs it, through the shell, with its output and errors apart. Folder is a
// temporary folder that goes with the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/json.h"

namespace reprise::apps {

class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = std::filesystem::path(testing::TempDir()) / fmt::format("reprise_apps_{}_{}", ::getpid(), count++);
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

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

// `arguments` is shell text; `before` may set variables ("NAME=value") or feed standard input ("echo hi |").
inline Outcome run_binary(const std::string& arguments, const std::string& before = {}) {
  const Folder folder;
  const std::string command =
      fmt::format("{} {} {} >{} 2>{}", before, REPRISE_BINARY, arguments, folder / "out", folder / "err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, content_of(folder / "out"), content_of(folder / "err")};
}

// Standard output as the one JSON value it must be.
inline OrderedJson json_of(const Outcome& o) {
  EXPECT_EQ(o.exit_code, 0) << o.err;
  auto json = parse_ordered_json(o.out, "standard output");
  EXPECT_TRUE(json.is_ok()) << o.out;
  EXPECT_EQ(o.out.find('\n'), o.out.size() - 1) << "more than one line";
  return json.is_ok() ? *json : OrderedJson();
}

inline std::string model_folder(const std::string& name) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/" + name;
}

inline std::vector<std::string> keys_of(const OrderedJson& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

}  // namespace reprise::apps
