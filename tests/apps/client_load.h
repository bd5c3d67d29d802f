// Clients that ask a server again and again until it is gone; each question must have an answer.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "support/http_client.h"

namespace reprise::apps {

struct ClientLoad {
  explicit ClientLoad(int64_t port) {
    for (int i = 0; i < 3; ++i)
      clients.push_back(std::async(std::launch::async, [port] {
        std::vector<int> statuses;
        while (true) {
          testing_support::HttpClient c(port);
          const testing_support::HttpAnswer a =
              c.post("/v1/completions", R"({"prompt": "once upon", "max_tokens": 100, "ignore_eos": true})");
          statuses.push_back(a.status);
          if (a.status != 200) return statuses;
        }
      }));
  }
  void expect_all_answered() {
    for (auto& client : clients) {
      ASSERT_EQ(client.wait_for(std::chrono::seconds(30)), std::future_status::ready) << "a client hangs";
      const std::vector<int> statuses = client.get();
      // 503, or no connection any more.
      EXPECT_TRUE(statuses.back() == 503 || statuses.back() <= 0) << statuses.back();
    }
  }
  std::vector<std::future<std::vector<int>>> clients;
};

}  // namespace reprise::apps
