// AskedServer: the server that an evaluation may ask in place of a model of its own: the flags that name it, and all
// questions sent to it, so many at a time. A plain value of the command's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/load.h"

namespace CLI {
class App;
}

namespace reprise::apps {

struct AskedServer {
  std::string base_url, model, api_key;
  std::optional<int64_t> parallel;
  std::optional<double> timeout_s;

  bool is_asked() const { return !base_url.empty(); }
  void add_to(CLI::App& app);
  // That the other flags come with an address, and that no model of one's own does.
  Status check(const std::string& model_path) const;
  // The answers in the order of the calls, `style` with the model's name. A call that is not answered is an error that
  // names its question: a score over the others would be another one. `title`: of the progress bar.
  Result<client::LoadRun> ask_all(const std::vector<client::GenerationCall>& calls, client::GenerationStyle style,
                                  std::string_view title,
                                  const std::function<std::string(size_t call)>& question) const;
};

}  // namespace reprise::apps
