// ServeSettings: the values of a server's settings, and the options that they make. A plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "service/serve_process.h"
#include "settings/binding.h"

namespace reprise::service {

struct ServeSettings {
  ServeOptions options;
  int64_t port, max_queued, max_queued_tokens, max_body, budget, most_answers, max_connections;
  std::optional<int64_t> admin_port, preemption_threshold, default_priority, prefill_requests;
  bool enable_metrics, log_requests, no_overlap, priorities, no_preemption, small_first, abort_on_priority;
  std::string expert_metrics, load_balance, allowed_hosts, image_hosts, cors_origins, socket_mode;

  ServeSettings() { settings::reset(bindings()); }  // the table's initial values
  // Where the values of the groups of a server lie; those of `options.model` are its own.
  std::vector<settings::Binding> bindings();
  // Puts what the values mean into `options`; errors that need more than one value to see.
  Status resolve();

 private:
  Status check_schedule();
};

}  // namespace reprise::service
