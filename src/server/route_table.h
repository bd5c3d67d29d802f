// RouteTable: which routes a server has, and the one that a request asks for. The routes outlive it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::server {

// Who may ask: everybody, holders of a key where keys are asked for, administrators.
enum class Access : uint8_t { Open, Key, Admin };

struct RouteFacts {
  const char* method;
  const char* path;  // one that ends with "/" is taken with whatever follows
  Access access;
  bool needs_model;
};

class RouteTable {
 public:
  explicit RouteTable(std::vector<const RouteFacts*> routes) : routes_(std::move(routes)) {}

  struct Match {
    const RouteFacts* route = nullptr;  // null: none has this path, or none with this method
    std::string allowed;                // the methods that the path has, "GET, POST"; "": there is no such path
  };
  // GET stands for HEAD as well.
  Match find(std::string_view method, std::string_view path) const;

  // "GET /health" and so on, in the order of the table.
  std::vector<std::string> names() const;
  // The route's own path, for logs: a path that is no route's is a text that a client wrote.
  std::string_view path_for_log(std::string_view path) const;

 private:
  std::vector<const RouteFacts*> routes_;
};

}  // namespace reprise::server
