// ServeProcess: the life of `reprise serve`: listen, load, serve, drain, end.
//
// Three threads besides the engine's own: the caller's runs the scheduler (and is rank 0 of the engine), one runs HTTP,
// one waits for signals and for steps that hang; two read what would hold up HTTP. Each further replica (`dp_size`) has
// an engine, a scheduler and a thread that runs it. The first SIGINT or SIGTERM drains:
// what runs may finish until the shutdown time is over. The second ends at once. SIGHUP reads files anew where there
// are any (serve/reload.h); else it ends the process, as it does by default. A supervisor that asks for it is told how
// far this is (serve/notifier.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/log_form.h"
#include "sched/replicas.h"
#include "server/api.h"
#include "server/http_server.h"
#include "service/run_settings.h"
#include "settings/precedence.h"

namespace reprise::service {

struct ServeOptions {
  RunSettings model;
  std::string chat_template;
  std::string tool_call_parser = "auto", reasoning_parser = "auto";  // auto: by the chat template
  std::string served_model_name;                                     // "" = the last part of the model's path
  server::HttpOptions http;
  server::ApiOptions api;
  sched::SchedulerOptions scheduler;
  sched::Balance balance = sched::Balance::Prefix;  // over replicas
  std::string config;                               // the file of settings that were taken; "" = none
  std::string profile_dir;                          // where /stop_profile writes; "" = profiles are off
  double shutdown_timeout_s = 30;
  double drain_delay_s = 0;                 // in which requests are still taken
  std::string api_key_file, api_keys_file;  // read anew at SIGHUP
  std::string request_log;                  // likewise opened; "" = none
  std::string otlp_endpoint;                // where traces go; "" = nowhere
  std::string sampling_defaults = "model";  // or openai
  double watchdog_timeout_s = 300;          // the process ends; 0: never
  double soft_watchdog_timeout_s = 0;       // the step is reported; 0: never
  std::string log_format = "text";          // or json
  bool check = false;                       // say what the options mean, and end
  std::vector<std::string> notices;         // about settings of a server
  bool supervised = false;                  // something wants to be told how far this is
  // For a reload: what was given to each setting, the same with what the file says by then, and what it would mean.
  settings::Precedence given;
  std::function<Result<settings::Precedence>()> given_by_then;
  std::function<Result<std::shared_ptr<ServeOptions>>(const settings::Precedence&)> interpret;

  // Whether SIGHUP is for what can be read anew.
  bool reloads() const {
    return supervised || !config.empty() || !api_key_file.empty() || !api_keys_file.empty() || !request_log.empty();
  }
  log::Form log_form() const { return log_format == "json" ? log::Form::Json : log::Form::Timed; }
};

// The keys of --api-keys-file; errors name the file.
Result<std::vector<server::KeyRules>> read_keys(const std::string& path);

// Returns when the server has ended.
Status serve(ServeOptions options);

}  // namespace reprise::service
