// run_binary: the program as a person runs it, through the shell, with its output and errors apart.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "base/json.h"
#include "support/folder.h"

namespace reprise::apps {

using testing_support::content_of;
using testing_support::Folder;
using testing_support::holds;

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
