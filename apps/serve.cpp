// `reprise serve`: the HTTP server.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/file.h"
#include "command.h"
#include "common/flags.h"
#include "common/text_model.h"
#include "serve/serve_process.h"
#include "server/cors.h"

namespace reprise::apps {
namespace {

constexpr int64_t kPreemption = 10;  // SGLang's default

struct ServeFlags {
  ServeOptions options;
  int64_t port = 30000, max_queued = 2048, max_queued_tokens = 0, max_body = 16 << 20, budget = 1 << 20,
          most_answers = 128;
  std::optional<int64_t> admin_port;
  int64_t max_connections = 4096;
  bool enable_metrics = false;
  std::string expert_metrics = "auto";
  std::string allowed_hosts, cors_origins, key_file;

  bool log_requests = false;
  bool no_overlap = false, priorities = false, no_preemption = false, small_first = false, abort_on_priority = false;
  std::optional<int64_t> preemption_threshold, default_priority, prefill_requests;

  Status check();
  Status check_schedule();
};

// SGLang's names and rules for the order of waiting requests.
Status ServeFlags::check_schedule() {
  ServeOptions& o = options;
  const std::string policy = o.model.schedule_policy.value_or("fcfs");
  if (policy == "priority")
    return invalid(
        "--schedule-policy priority: SGLang has no such policy behind this name; "
        "--enable-priority-scheduling orders by priority (with --schedule-policy fcfs or lof)");
  ASSIGN_OR_RETURN(o.scheduler.policy, sched::parse_policy(policy));
  if (priorities && policy != "fcfs" && policy != "lof")
    return invalid("--enable-priority-scheduling with --schedule-policy {}: allowed: fcfs, lof", policy);
  const bool by_prefix = policy == "lpm" || policy == "dfs-weight";
  if (by_prefix && o.model.disable_radix_cache) {
    o.notices.push_back(
        fmt::format("--schedule-policy {} has no effect beside --disable-radix-cache; effective: fcfs", policy));
    o.scheduler.policy = sched::Policy::Fcfs;
  }
  o.scheduler.small_priorities_first = small_first;
  o.api.limits.default_priority = default_priority.value_or(0);
  if (priorities && !no_preemption) o.scheduler.preemption_threshold = preemption_threshold.value_or(kPreemption);
  if (priorities)
    o.notices.push_back(no_preemption ? std::string("--enable-priority-scheduling: the field `priority` always orders "
                                                    "waiting requests; none is preempted for it")
                                      : fmt::format("--enable-priority-scheduling: the field `priority` orders waiting "
                                                    "requests, and preempts running ones beyond a difference of {}",
                                                    *o.scheduler.preemption_threshold));
  if (!priorities && (preemption_threshold || no_preemption))
    o.notices.push_back(
        "--priority-scheduling-preemption-threshold and --disable-priority-preemption have no effect "
        "without --enable-priority-scheduling");
  if (abort_on_priority)
    o.notices.push_back("--abort-on-priority-when-disabled has no effect: priorities always order waiting requests");
  return Status::ok();
}

std::vector<std::string> list_of(std::string_view names) {
  std::vector<std::string> out;
  while (!names.empty()) {
    const size_t comma = names.find(',');
    if (comma != 0) out.emplace_back(names.substr(0, comma));
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
  }
  return out;
}

// Keys by line; blanks around them do not count.
Result<std::vector<std::string>> keys_of(const std::string& path) {
  ASSIGN_OR_RETURN(const auto content, read_file(path, size_t{1} << 20));
  std::istringstream lines(std::string(content.begin(), content.end()));
  std::vector<std::string> out;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(" \t\r"));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) out.push_back(line);
  }
  if (out.empty()) return invalid("--api-key-file {}: there is no key in it", path);
  return out;
}

Status ServeFlags::check() {
  ServeOptions& o = options;
  o.model.serving = true;
  RETURN_IF_ERROR(o.model.check());
  RETURN_IF_ERROR(check_schedule());
  if (!o.chat_template.empty()) RETURN_IF_ERROR(chat_template_source(o.chat_template).status());
  o.api.access_log |= log_requests;
  using engine::CountExperts;
  o.model.count_experts = expert_metrics == "on"    ? CountExperts::On
                          : expert_metrics == "off" ? CountExperts::Off
                                                    : CountExperts::WhereFree;
  o.http.port = port;
  o.http.admin_port = admin_port;
  o.http.max_body_bytes = static_cast<size_t>(max_body);
  o.http.max_held_bytes = std::max(o.http.max_held_bytes, 2 * o.http.max_body_bytes);
  o.http.max_connections = max_connections;
  if (!key_file.empty()) {
    ASSIGN_OR_RETURN(o.api.api_keys, keys_of(key_file));
  }
  if (!allowed_hosts.empty()) o.api.allowed_hosts = list_of(allowed_hosts);
  o.api.cors_origins = list_of(cors_origins);
  for (const std::string& origin : o.api.cors_origins)
    RETURN_IF_ERROR(server::check_origin(origin).at("--cors-origins"));
  o.api.admin_port = admin_port.has_value();
  o.api.limits.token_budget = budget;
  o.api.limits.most_answers = most_answers;
  o.scheduler.max_queued = max_queued;
  o.scheduler.max_queued_tokens = max_queued_tokens;
  o.scheduler.prefix_cache = !o.model.disable_radix_cache;
  o.scheduler.overlap = !no_overlap;
  o.scheduler.mixed_prefill_tokens = o.model.mixed_prefill_tokens.value_or(0);
  o.scheduler.max_prefill_tokens = o.model.max_prefill_tokens.value_or(0);
  o.scheduler.prefill_requests = prefill_requests.value_or(0);
  o.scheduler.seed = static_cast<uint64_t>(o.model.random_seed);
  if (enable_metrics) o.notices.push_back("--enable-metrics: /metrics is always there");
  if (log_requests) o.notices.push_back("--log-requests: --access-log; prompts and answers are never logged");
  o.watchdog_timeout_s = o.model.watchdog_timeout.value_or(o.watchdog_timeout_s);
  std::error_code ignored;
  if (!o.profile_dir.empty() && !std::filesystem::is_directory(o.profile_dir, ignored))
    return invalid("--profile-dir {}: there is no such folder", o.profile_dir);
  if (o.api.admin_port && port == *admin_port && port != 0)
    return invalid("--admin-port {} is --port; allowed: another one", port);
  return Status::ok();
}

}  // namespace

Command add_serve(CLI::App& program) {
  auto flags = std::make_shared<ServeFlags>();
  ServeOptions& o = flags->options;
  constexpr int64_t kMany = int64_t{1} << 40;
  Command c;
  c.app = program.add_subcommand("serve", "Serve a model over HTTP (OpenAI's API, and SGLang's /generate)");
  c.app->option_defaults()->group("Server");
  add_text(*c.app, "--host", o.http.host, "address to listen on; 0.0.0.0: all (default 127.0.0.1)", "ADDRESS");
  add_integer(*c.app, "--port", flags->port, {0, 65535}, "port to listen on; 0: any free one (default 30000)");
  add_text(*c.app, "-a,--served-model-name,--alias", o.served_model_name,
           "what clients call the model; default: the last part of its path", "NAME");
  add_text(*c.app, "--chat-template", o.chat_template,
           "Jinja file, or chatml or llama-2, in place of the model's own template", "FILE");
  std::vector<std::string> tool_parsers = server::tool_format_names(), reasoning_parsers{"auto", "none"};
  tool_parsers.insert(tool_parsers.begin(), "auto");
  for (const server::ReasoningParser& p : server::reasoning_parsers()) reasoning_parsers.emplace_back(p.name);
  add_choice(*c.app, "--tool-call-parser", o.tool_call_parser, tool_parsers,
             "how the model writes tool calls; auto: as its chat template shows");
  add_choice(*c.app, "--reasoning-parser", o.reasoning_parser, reasoning_parsers,
             "take thoughts between <think> marks out of the answer; auto: when the chat template knows them; "
             "deepseek-r1 and qwen3-thinking: answers begin with a thought");
  add_text(*c.app, "--api-key", o.api.api_key, "key that every route but health asks for", "KEY");
  add_text(*c.app, "--api-key-file", flags->key_file, "more such keys, one on a line", "FILE");
  add_integer(*c.app, "--max-answers-per-key", o.api.most_answers_of_key, {0, kMany},
              "answers (prompts times n) of one key that run or wait; 0: no bound");
  add_text(*c.app, "--admin-api-key", o.api.admin_api_key, "key that opens the admin routes to other machines", "KEY");
  add_integer(*c.app, "--admin-port", flags->admin_port, {0, 65535},
              "serve the admin routes on this port of loopback alone");
  add_text(*c.app, "--allowed-hosts", flags->allowed_hosts,
           "hosts that requests may name beside this machine's loopback, for a proxy that passes them on; *: any "
           "(default on loopback: none, on other addresses: any)",
           "NAME,...");
  add_text(*c.app, "--cors-origins", flags->cors_origins,
           "origins whose web pages may call this server (https://chat.example); *: every page (default: none)",
           "ORIGIN,...");
  add_switch(*c.app, "--strict-fields", o.api.limits.strict_fields,
             "fields of requests that are not known or not honoured are errors, where else they are warnings");
  add_integer(*c.app, "--max-queued-requests", flags->max_queued, {0, kMany},
              "requests that may wait; more are refused with 429 (default 2048)");
  add_integer(*c.app, "--max-queued-tokens", flags->max_queued_tokens, {0, kMany},
              "tokens that waiting requests may take, answers included; 0: no bound");
  add_integer(*c.app, "--request-token-budget", flags->budget, {1, kMany},
              "tokens that one request may take, all its answers together");
  add_integer(*c.app, "--max-answers", flags->most_answers, {1, 65536}, "answers (prompts times n) of one request");
  add_integer(*c.app, "--max-request-bytes", flags->max_body, {1024, int64_t{1} << 32}, "largest body of a request");
  add_integer(*c.app, "--max-connections", flags->max_connections, {1, 1 << 20},
              "open connections; more are closed at once");
  add_text(*c.app, "--profile-dir", o.profile_dir, "folder where /stop_profile writes; without it profiles are off",
           "FOLDER");
  add_real(*c.app, "--shutdown-timeout", o.shutdown_timeout_s, {0, HUGE_VAL},
           "seconds that requests may take to finish after SIGTERM");
  add_choice(*c.app, "--log-format", o.log_format, {"text", "json"},
             "form of log lines, each with time and level (default text)");
  add_switch(*c.app, "--access-log,--enable-log-requests", o.api.access_log,
             "a log line for every request: client, tokens, times, how it ended; never text");
  add_switch(*c.app, "--log-requests", flags->log_requests, "--access-log");
  add_real(*c.app, "--soft-watchdog-timeout", o.soft_watchdog_timeout_s, {0, HUGE_VAL},
           "seconds that a step may take before it is reported; 0: any time");
  add_integer(*c.app, "--prefill-max-requests", flags->prefill_requests, {1, kMany}, "most prompts of a step");
  add_switch(*c.app, "--disable-overlap-schedule", flags->no_overlap,
             "form a batch only when the one before is done, also on devices that compute asynchronously");
  add_switch(*c.app, "--enable-priority-scheduling", flags->priorities,
             "larger values of the field `priority` preempt running requests");
  add_switch(*c.app, "--disable-priority-preemption", flags->no_preemption, "priorities order waiting requests alone");
  add_integer(*c.app, "--priority-scheduling-preemption-threshold", flags->preemption_threshold, {0, kMany},
              "difference of priorities above which a running request is preempted (default 10)");
  add_switch(*c.app, "--schedule-low-priority-values-first", flags->small_first, "smaller priorities go first");
  add_integer(*c.app, "--default-priority-value", flags->default_priority, {-1000000, 1000000},
              "priority of requests that name none (default 0)");
  add_switch(*c.app, "--abort-on-priority-when-disabled", flags->abort_on_priority,
             "accepted; priorities are never disabled");
  add_choice(*c.app, "--sampling-defaults", o.sampling_defaults, {"model", "openai"},
             "of fields that a request leaves out: generation_config.json, then OpenAI's; or OpenAI's alone");
  add_switch(*c.app, "--check", o.check, "check the command line, print the notices, and exit");
  add_switch(*c.app, "--enable-metrics", flags->enable_metrics, "accepted; /metrics is always there");
  add_choice(*c.app, "--expert-metrics", flags->expert_metrics, {"auto", "on", "off"},
             "count rows by expert in /metrics; auto: where that needs no copy from the device");
  c.app->option_defaults()->group("Options");
  o.model.add_to(*c.app);
  c.app->footer("Try it: curl http://127.0.0.1:30000/v1/completions -d '{\"prompt\": \"Hello\", \"max_tokens\": 8}'");
  c.check = [flags] { return flags->check(); };
  c.over_ranks = [flags] { return flags->options.check ? nullptr : &flags->options.model; };
  c.run = [flags] { return serve(flags->options); };
  return c;
}

}  // namespace reprise::apps
