// Choices: the settings that an engine of the library is opened with: those of a model and its engine, and of a server
// those that have a meaning without one. A plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/model_settings.h"
#include "base/json.h"
#include "base/log.h"
#include "sched/scheduler.h"
#include "settings/binding.h"
#include "settings/precedence.h"

namespace reprise::capi {

using Values = std::vector<std::pair<std::string, std::string>>;  // by key, in the order in which they were set

struct Choices {
  api::ModelSettings model;
  std::string chat_template, served_model_name, tool_call_parser, reasoning_parser, engine_thread;
  std::optional<std::string> log_level;
  int64_t max_queued_requests;

  Choices();
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;
  std::vector<settings::Binding> bindings();

  Status set(const Values& values);
  // Errors that need more than one value to see, and values that only `serve` can honour.
  Status check() const;
  bool own_thread() const { return engine_thread == "on"; }
  log::Level level() const;
  Result<sched::SchedulerOptions> scheduler() const;
};

// One value, as reprise_settings_set() checks it.
Status check_value(const std::string& key, const std::string& value);

// All rows that can be set.
OrderedJson settings_table();
settings::Precedence precedence_of(const Values& given);

}  // namespace reprise::capi
