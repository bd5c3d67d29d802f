// ServerFlags: the flags that name the server which an evaluation may ask in place of a model of its own. A plain value
// of the command's thread.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "evaluation/answers.h"

namespace CLI {
class App;
}

namespace reprise::apps {

struct ServerFlags {
  std::string base_url, model, api_key;
  std::optional<int64_t> parallel;
  std::optional<double> timeout_s;

  bool is_asked() const { return !base_url.empty(); }
  void add_to(CLI::App& app);
  // That the other flags come with an address, and that no model of one's own does.
  Status check(const std::string& model_path) const;
  evaluation::AskedServer place() const;
};

}  // namespace reprise::apps
