// Hub: models by name. find() looks at what is on disk; fetch() asks the hub and brings what is missing. Owns its
// settings; one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "hub/cache.h"
#include "hub/download.h"
#include "hub/http.h"

namespace reprise::hub {

struct FetchOptions {
  bool progress = true;               // a bar, or lines where there is no terminal
  std::function<bool()> stop;         // asked often; true ends the fetch with Cancelled and keeps what has arrived
  std::string curl = "libcurl.so.4";  // for tests
};

struct FetchedModel {
  std::string path;     // a folder or a GGUF file, of a split one the first part
  std::string by_rule;  // as in Choice
  uint64_t bytes = 0;   // of the model
  size_t files = 0;
  uint64_t fetched = 0;  // bytes that were missing; 0: everything was there
};

class Hub {
 public:
  explicit Hub(HubSettings settings) : settings_(std::move(settings)), cache_(settings_.kind, settings_.cache) {}
  const HubSettings& settings() const { return settings_; }
  const HubCache& cache() const { return cache_; }

  // The model on disk. NotFound, with what is missing, when it is not there or not whole.
  Result<KeptModel> find(const ModelName& name) const;

  // Asks the hub for the revision's files, fetches those that are missing, and says so on standard error.
  Result<FetchedModel> fetch(const ModelName& name, const FetchOptions& options) const;

 private:
  struct Fetch;
  HubSettings settings_;
  HubCache cache_;
};

}  // namespace reprise::hub
