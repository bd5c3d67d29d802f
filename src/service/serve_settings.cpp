#include "service/serve_settings.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "api/image_fetch.h"
#include "api/text_model.h"
#include "base/file.h"
#include "server/cors.h"
#include "service/span_post.h"

namespace reprise::service {
namespace {

constexpr int64_t kPreemption = 10;  // SGLang's default

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
  if (out.empty()) return invalid("`api_key_file` {}: there is no key in it", path);
  return out;
}

}  // namespace

std::vector<settings::Binding> ServeSettings::bindings() {
  ServeOptions& o = options;
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
Status ServeSettings::check_schedule() {
  ServeOptions& o = options;
  const std::string policy = o.model.schedule_policy.value_or("fcfs");
  if (policy == "priority")
    return invalid(
        "`schedule_policy` priority: SGLang has no such policy behind this name; "
        "`enable_priority_scheduling` orders by priority (with `schedule_policy` fcfs or lof)");
  ASSIGN_OR_RETURN(o.scheduler.policy, sched::parse_policy(policy));
  if (priorities && policy != "fcfs" && policy != "lof")
    return invalid("`enable_priority_scheduling` with `schedule_policy` {}: allowed: fcfs, lof", policy);
  const bool by_prefix = policy == "lpm" || policy == "dfs-weight";
  if (by_prefix && o.model.disable_radix_cache) {
    o.notices.push_back(
        fmt::format("`schedule_policy` {} has no effect beside `disable_radix_cache`; effective: fcfs", policy));
    o.scheduler.policy = sched::Policy::Fcfs;
  }
  o.scheduler.small_priorities_first = small_first;
  o.api.limits.default_priority = default_priority.value_or(0);
  if (priorities && !no_preemption) o.scheduler.preemption_threshold = preemption_threshold.value_or(kPreemption);
  if (priorities)
    o.notices.push_back(no_preemption ? std::string("`enable_priority_scheduling`: the field `priority` always orders "
                                                    "waiting requests; none is preempted for it")
                                      : fmt::format("`enable_priority_scheduling`: the field `priority` orders waiting "
                                                    "requests, and preempts running ones beyond a difference of {}",
                                                    *o.scheduler.preemption_threshold));
  if (!priorities && (preemption_threshold || no_preemption))
    o.notices.push_back(
        "`priority_scheduling_preemption_threshold` and `disable_priority_preemption` have no effect "
        "without `enable_priority_scheduling`");
  if (abort_on_priority)
    o.notices.push_back("`abort_on_priority_when_disabled` has no effect: priorities always order waiting requests");
  return Status::ok();
}

Status ServeSettings::resolve() {
  ServeOptions& o = options;
  o.model.serving = true;
  RETURN_IF_ERROR(o.model.check_values());
  RETURN_IF_ERROR(check_schedule());
  ASSIGN_OR_RETURN(o.balance, sched::parse_balance(load_balance));
  if (o.model.dp_size > 1 && !o.profile_dir.empty())
    o.notices.push_back("`profile_dir` with several replicas: profiles show the first of them");
  if (!o.chat_template.empty()) RETURN_IF_ERROR(api::chat_template_source(o.chat_template).status());
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
    ASSIGN_OR_RETURN(o.api.keys, read_keys(o.api_keys_file));
  }
  const bool octal = socket_mode.size() <= 4 && socket_mode.find_first_not_of("01234567") == std::string::npos;
  if (socket_mode.empty() || !octal || std::stoll(socket_mode, nullptr, 8) > 0777)
    return invalid("`socket_mode` {}: allowed: 000 to 777, in octal", socket_mode);
  o.http.socket_mode = std::stoll(socket_mode, nullptr, 8);
  if (!allowed_hosts.empty()) o.api.allowed_hosts = list_of(allowed_hosts);
  o.api.cors_origins = list_of(cors_origins);
  for (const std::string& origin : o.api.cors_origins)
    RETURN_IF_ERROR(server::check_origin(origin).at("`cors_origins`"));
  o.api.admin_port = admin_port.has_value();
  ASSIGN_OR_RETURN(o.api.limits.fetch_image, api::image_fetch(image_hosts, o.api.limits.image.bytes));
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
  if (enable_metrics) o.notices.push_back("`enable_metrics`: /metrics is always there");
  if (log_requests) o.notices.push_back("`log_requests`: `access_log`, which has no text");
  o.watchdog_timeout_s = o.model.watchdog_timeout.value_or(o.watchdog_timeout_s);
  if (o.api.log_prompts && (o.request_log.empty() || o.request_log == "-"))
    return invalid("`log_prompts`: allowed with `request_log` FILE, a file that only its owner may read");
  if (!o.otlp_endpoint.empty()) RETURN_IF_ERROR(otlp_url(o.otlp_endpoint).status());
  std::error_code ignored;
  if (!o.profile_dir.empty() && !std::filesystem::is_directory(o.profile_dir, ignored))
    return invalid("`profile_dir` {}: there is no such folder", o.profile_dir);
  if (o.api.admin_port && port == *admin_port && port != 0)
    return invalid("`admin_port` {} is `port`; allowed: another one", port);
  return Status::ok();
}

}  // namespace reprise::service
