// Routes by method and path.
#include "server/route_table.h"

#include <gtest/gtest.h>

namespace reprise::server::route_table_test {
namespace {

struct RouteTableTest : testing::Test {
  const RouteFacts get{"GET", "/v1/models", Access::Key, true}, put{"POST", "/v1/models", Access::Admin, true},
      below{"GET", "/v1/models/", Access::Key, true}, root{"GET", "/", Access::Open, false};
  const RouteTable table{{&get, &put, &below, &root}};
};

TEST_F(RouteTableTest, TheMethodChoosesAmongRoutesOfOnePath) {
  EXPECT_EQ(table.find("GET", "/v1/models").route, &get);
  EXPECT_EQ(table.find("POST", "/v1/models").route, &put);
  EXPECT_EQ(table.find("HEAD", "/v1/models").route, &get) << "HEAD is GET without a body";
  const RouteTable::Match other = table.find("DELETE", "/v1/models");
  EXPECT_EQ(other.route, nullptr);
  EXPECT_EQ(other.allowed, "GET, POST");
  EXPECT_EQ(table.find("get", "/v1/models").route, nullptr) << "methods are case-sensitive (RFC 9110 9.1)";
}

TEST_F(RouteTableTest, APathThatEndsWithASlashTakesWhatFollows) {
  EXPECT_EQ(table.find("GET", "/v1/models/a/b").route, &below);
  EXPECT_EQ(table.find("GET", "/v1/models/").route, nullptr) << "something has to follow";
  EXPECT_EQ(table.find("GET", "/").route, &root);
  const RouteTable::Match none = table.find("GET", "/other");
  EXPECT_EQ(none.route, nullptr);
  EXPECT_EQ(none.allowed, "") << "\"/\" is one path, and no beginning of all";
}

TEST_F(RouteTableTest, LogsHaveThePathsOfRoutesAlone) {
  EXPECT_EQ(table.path_for_log("/v1/models"), "/v1/models");
  EXPECT_EQ(table.path_for_log("/v1/models/secret"), "/v1/models/");
  EXPECT_EQ(table.path_for_log("/v1/models/"), "/v1/models/");
  EXPECT_EQ(table.path_for_log("/etc/passwd"), "unknown");
  EXPECT_EQ(table.names(), (std::vector<std::string>{"GET /v1/models", "POST /v1/models", "GET /v1/models/", "GET /"}));
}

}  // namespace
}  // namespace reprise::server::route_table_test
