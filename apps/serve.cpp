// `reprise serve`: the HTTP server.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "api/image_fetch.h"
#include "api/text_model.h"
#include "base/file.h"
#include "command.h"
#include "common/command_settings.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "server/cors.h"
#include "service/serve_process.h"
#include "service/span_post.h"

namespace reprise::apps {

using namespace api;

namespace {

constexpr int64_t kPreemption = 10;  // SGLang's default

struct ServeFlags {
  service::ServeOptions options;
  int64_t port, max_queued, max_queued_tokens, max_body, budget, most_answers, max_connections;
  std::optional<int64_t> admin_port, preemption_threshold, default_priority, prefill_requests;
  bool enable_metrics, log_requests, no_overlap, priorities, no_preemption, small_first, abort_on_priority;
  std::string expert_metrics, load_balance, allowed_hosts, image_hosts, cors_origins, socket_mode;

  ServeFlags() { settings::reset(bindings()); }
  std::vector<settings::Binding> bindings();
  void add_to(CLI::App& app);
  // What the values mean as options; errors that need more than one value to see.
  Status resolve();
  Status check_schedule();
};

std::vector<settings::Binding> ServeFlags::bindings() {
  service::ServeOptions& o = options;
  return {{"config", &o.config},
          {"host", &o.http.host},
          {"port", &port},
          {"served_model_name", &o.served_model_name},
          {"chat_template", &o.chat_template},
          {"tool_call_parser", &o.tool_call_parser},
          {"reasoning_parser", &o.reasoning_parser},
          {"api_key", &o.api.api_key},
          {"api_key_file", &o.api_key_file},
          {"api_keys_file", &o.api_keys_file},
          {"socket_mode", &socket_mode},
          {"drain_delay", &o.drain_delay_s},
          {"request_log", &o.request_log},
          {"log_prompts", &o.api.log_prompts},
          {"keep_attribution", &o.api.limits.keep_attribution},
          {"otlp_endpoint", &o.otlp_endpoint},
          {"max_answers_per_key", &o.api.most_answers_of_key},
          {"admin_api_key", &o.api.admin_api_key},
          {"admin_port", &admin_port},
          {"allowed_hosts", &allowed_hosts},
          {"cors_origins", &cors_origins},
          {"strict_fields", &o.api.limits.strict_fields},
          {"max_queued_requests", &max_queued},
          {"max_queued_tokens", &max_queued_tokens},
          {"request_token_budget", &budget},
          {"max_answers", &most_answers},
          {"max_request_bytes", &max_body},
          {"max_images", &o.api.limits.most_images},
          {"max_image_bytes", &o.api.limits.image.bytes},
          {"max_image_pixels", &o.api.limits.image.pixels},
          {"max_video_frames", &o.api.limits.most_frames},
          {"max_video_pixels", &o.api.limits.video_pixels},
          {"allowed_image_hosts", &image_hosts},
          {"max_connections", &max_connections},
          {"profile_dir", &o.profile_dir},
          {"shutdown_timeout", &o.shutdown_timeout_s},
          {"log_format", &o.log_format},
          {"access_log", &o.api.access_log},
          {"log_requests", &log_requests},
          {"soft_watchdog_timeout", &o.soft_watchdog_timeout_s},
          {"prefill_max_requests", &prefill_requests},
          {"disable_overlap_schedule", &no_overlap},
          {"enable_priority_scheduling", &priorities},
          {"disable_priority_preemption", &no_preemption},
          {"priority_scheduling_preemption_threshold", &preemption_threshold},
          {"schedule_low_priority_values_first", &small_first},
          {"default_priority_value", &default_priority},
          {"abort_on_priority_when_disabled", &abort_on_priority},
          {"sampling_defaults", &o.sampling_defaults},
          {"check", &o.check},
          {"enable_metrics", &enable_metrics},
          {"load_balance_method", &load_balance},
          {"expert_metrics", &expert_metrics}};
}

// SGLang's names and rules for the order of waiting requests.
Status ServeFlags::check_schedule() {
  service::ServeOptions& o = options;
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

void ServeFlags::add_to(CLI::App& app) {
  add_settings(app, bindings());
  add_run_settings(app, options.model);
}

Status ServeFlags::resolve() {
  service::ServeOptions& o = options;
  o.model.serving = true;
  RETURN_IF_ERROR(o.model.check_values());
  RETURN_IF_ERROR(check_schedule());
  ASSIGN_OR_RETURN(o.balance, sched::parse_balance(load_balance));
  if (o.model.dp_size > 1 && !o.profile_dir.empty())
    o.notices.push_back("--profile-dir with several replicas: profiles show the first of them");
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
  if (!o.api_key_file.empty()) {
    ASSIGN_OR_RETURN(o.api.api_keys, keys_of(o.api_key_file));
  }
  if (!o.api_keys_file.empty()) {
    ASSIGN_OR_RETURN(o.api.keys, service::read_keys(o.api_keys_file));
  }
  const bool octal = socket_mode.size() <= 4 && socket_mode.find_first_not_of("01234567") == std::string::npos;
  if (socket_mode.empty() || !octal || std::stoll(socket_mode, nullptr, 8) > 0777)
    return invalid("--socket-mode {}: allowed: 000 to 777, in octal", socket_mode);
  o.http.socket_mode = std::stoll(socket_mode, nullptr, 8);
  if (!allowed_hosts.empty()) o.api.allowed_hosts = list_of(allowed_hosts);
  o.api.cors_origins = list_of(cors_origins);
  for (const std::string& origin : o.api.cors_origins)
    RETURN_IF_ERROR(server::check_origin(origin).at("--cors-origins"));
  o.api.admin_port = admin_port.has_value();
  ASSIGN_OR_RETURN(o.api.limits.fetch_image, image_fetch(image_hosts, o.api.limits.image.bytes));
  o.api.limits.token_budget = budget;
  o.api.limits.most_answers = most_answers;
  o.scheduler.max_queued = max_queued;
  o.scheduler.max_queued_tokens = max_queued_tokens;
  o.scheduler.prefix_cache = !o.model.disable_radix_cache;
  o.scheduler.overlap = !no_overlap;
  ASSIGN_OR_RETURN(o.scheduler.speculation, o.model.speculation.options());
  o.scheduler.mixed_prefill_tokens = o.model.mixed_prefill_tokens.value_or(0);
  o.scheduler.max_prefill_tokens = o.model.max_prefill_tokens.value_or(0);
  o.scheduler.prefill_requests = prefill_requests.value_or(0);
  o.scheduler.seed = static_cast<uint64_t>(o.model.random_seed);
  if (enable_metrics) o.notices.push_back("--enable-metrics: /metrics is always there");
  if (log_requests) o.notices.push_back("--log-requests: --access-log, which has no text");
  o.watchdog_timeout_s = o.model.watchdog_timeout.value_or(o.watchdog_timeout_s);
  if (o.api.log_prompts && (o.request_log.empty() || o.request_log == "-"))
    return invalid("--log-prompts: allowed with --request-log FILE, a file that only its owner may read");
  if (!o.otlp_endpoint.empty()) RETURN_IF_ERROR(service::otlp_url(o.otlp_endpoint).status());
  std::error_code ignored;
  if (!o.profile_dir.empty() && !std::filesystem::is_directory(o.profile_dir, ignored))
    return invalid("--profile-dir {}: there is no such folder", o.profile_dir);
  if (o.api.admin_port && port == *admin_port && port != 0)
    return invalid("--admin-port {} is --port; allowed: another one", port);
  return Status::ok();
}

// The options that these settings make, with nothing of this process changed.
Result<std::shared_ptr<service::ServeOptions>> interpret(const settings::Precedence& given) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App scratch("", "serve");
  flags->add_to(scratch);
  RETURN_IF_ERROR(CommandSettings::of(scratch)->assign(given));
  RETURN_IF_ERROR(flags->resolve());
  return std::shared_ptr<service::ServeOptions>(flags, &flags->options);
}

Status check(ServeFlags& flags, CLI::App& app) {
  ASSIGN_OR_RETURN(const log::Level level, flags.options.model.level());
  log::set_level(level);
  const auto settings = CommandSettings::of(app);
  flags.options.given = settings->given();
  flags.options.given_by_then = [settings] { return settings->with_file_of_now(); };
  flags.options.interpret = interpret;
  return flags.resolve();
}

}  // namespace

Command add_serve(CLI::App& program) {
  auto flags = std::make_shared<ServeFlags>();
  Command c;
  c.app = program.add_subcommand("serve", "Serve a model over HTTP (OpenAI's API, and SGLang's /generate)");
  flags->add_to(*c.app);
  c.app->footer("Try it: curl http://127.0.0.1:30000/v1/completions -d '{\"prompt\": \"Hello\", \"max_tokens\": 8}'");
  c.check = [flags, app = c.app] { return check(*flags, *app); };
  c.over_ranks = [flags] { return flags->options.check ? nullptr : &flags->options.model; };
  c.run = [flags] { return service::serve(flags->options); };
  return c;
}

}  // namespace reprise::apps
