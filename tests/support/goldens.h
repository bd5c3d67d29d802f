// Golden values of tests/data: files of JSON, and the logits of a tiny checkpoint by the length of its prompts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace reprise::testing_support {

// Fails the test, and is null, where the file is none.
inline Json golden_json(const std::string& name) {
  const auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + name);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  const auto json = text.is_ok() ? parse_json(*text, name) : Result<Json>(text.status());
  EXPECT_TRUE(json.is_ok()) << json.status().message();
  return json.is_ok() ? *json : Json();
}

// Logits at some positions of a prompt; vocab_size values a position. Of models with states also those of the last
// positions, computed one by one behind all others at once.
struct Golden {
  std::vector<int32_t> tokens, positions;
  std::vector<float> logits, stepped;
};

// By the number of tokens.
inline std::map<int64_t, Golden> read_goldens(const std::string& folder,
                                              const std::string& name = "golden.safetensors") {
  auto file = checkpoint::SafetensorsFile::open(folder + "/" + name);
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  std::map<int64_t, Golden> out;
  for (auto& t : file->tensors()) {
    const auto dot = t.name.find('.');
    Golden& g = out[std::stoll(t.name.substr(dot + 1))];
    const auto bytes = file->bytes(t);
    auto copy = [&](auto& v) {
      v.resize(bytes.size() / 4);
      std::memcpy(v.data(), bytes.data(), bytes.size());
    };
    if (t.name.starts_with("tokens"))
      copy(g.tokens);
    else if (t.name.starts_with("positions"))
      copy(g.positions);
    else
      copy(t.name.starts_with("stepped") ? g.stepped : g.logits);
  }
  return out;
}

inline size_t argmax_of(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// The first token of a row of logits is the reference's, unless its second one is nearer than `margin`. True: it is
// not, so that the row was compared.
inline bool expect_first_token(std::span<const float> want, std::span<const float> got, double margin,
                               const std::string& where) {
  const size_t best = argmax_of(want);
  float second = -INFINITY;
  for (size_t v = 0; v < want.size(); ++v)
    if (v != best) second = std::max(second, want[v]);
  if (static_cast<double>(want[best] - second) <= margin) return false;
  EXPECT_EQ(argmax_of(got), best) << where;
  return true;
}

}  // namespace reprise::testing_support
