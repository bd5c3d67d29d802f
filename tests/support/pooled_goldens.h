// Golden vectors and scores of tests/data/encoders, and how near two vectors are.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "sched/embedder.h"

namespace reprise::testing_support {

struct PooledGolden {
  sched::EmbeddingRequest request;
  std::vector<float> row;
};

// By name.
inline std::vector<PooledGolden> read_pooled_goldens(const std::string& folder) {
  auto file = checkpoint::SafetensorsFile::open(folder + "/golden.safetensors");
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  std::map<std::string, PooledGolden> all;
  for (auto& t : file->tensors()) {
    const auto dot = t.name.find('.');
    PooledGolden& g = all[t.name.substr(dot + 1)];
    const auto bytes = file->bytes(t);
    const auto copy = [&](auto& v) {
      v.resize(bytes.size() / 4);
      std::memcpy(v.data(), bytes.data(), bytes.size());
    };
    if (t.name.starts_with("tokens")) {
      copy(g.request.tokens);
    } else if (t.name.starts_with("pooled")) {
      copy(g.row);
    } else {
      std::vector<int32_t> second;
      copy(second);
      g.request.second_kind = second.at(0);
    }
  }
  std::vector<PooledGolden> out;
  for (auto& entry : all) out.push_back(std::move(entry.second));
  return out;
}

inline double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace reprise::testing_support
