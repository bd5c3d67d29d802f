// What routers ask for before they choose a server: vLLM's /load and SGLang's /v1/loads.
#include <algorithm>
#include <charconv>
#include <ctime>

#include "kv/kv_pool.h"
#include "server/api_call.h"
#include "server/dates.h"
#include "server/request_reader.h"

namespace reprise::server {
namespace {

constexpr double kGib = 1 << 30;

int64_t used_pages(const sched::SchedulerStats& s) { return s.pages - s.free_pages - s.evictable_pages; }

double share(int64_t part, int64_t all) { return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0; }

// The value of a field of a query; nullopt where it is not there.
std::optional<std::string> query_field(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t is = pair.find('=');
    if (is != std::string_view::npos && pair.substr(0, is) == name) return percent_decoded(pair.substr(is + 1));
  }
  return std::nullopt;
}

// What is asked of /v1/loads.
struct Wanted {
  static constexpr std::string_view kSections[] = {"core", "memory", "spec", "lora", "disagg", "queues", "all"};
  std::string sections = "all";
  std::optional<size_t> rank;

  bool has(std::string_view section) const {
    const std::string in = "," + sections + ",";
    return in.find(fmt::format(",{},", section)) != std::string::npos || in.find(",all,") != std::string::npos;
  }
};

std::optional<ApiError> read_wanted(std::string_view query, size_t replicas, Wanted& out) {
  if (const auto include = query_field(query, "include"); include && !include->empty()) {
    out.sections = *include;
    std::erase(out.sections, ' ');
    std::string_view rest = out.sections;
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      if (std::find(std::begin(Wanted::kSections), std::end(Wanted::kSections), one) == std::end(Wanted::kSections))
        return ApiError{400,
                        fmt::format("one or more of {} is expected, with commas", fmt::join(Wanted::kSections, ", ")),
                        "include"};
    }
  }
  if (const auto rank = query_field(query, "dp_rank")) {
    size_t number = 0;
    const auto [end, wrong] = std::from_chars(rank->data(), rank->data() + rank->size(), number);
    if (wrong != std::errc() || end != rank->data() + rank->size() || number >= replicas)
      return ApiError{400, fmt::format("a number from 0 to {} is expected", replicas - 1), "dp_rank"};
    out.rank = number;
  }
  if (const auto format = query_field(query, "format"); format && *format != "json")
    return ApiError{400, "\"json\" is expected; /metrics has the form of Prometheus", "format"};
  return std::nullopt;
}

OrderedJson load_of(const sched::SchedulerStats& s, const GraphNumbers& numbers, const Wanted& wanted) {
  const int64_t used = used_pages(s) * kv::kPageTokens, all = s.pages * kv::kPageTokens;
  OrderedJson out = OrderedJson::object();
  if (wanted.has("core"))
    out = {{"num_running_reqs", s.running},
           {"num_waiting_reqs", s.waiting},
           {"num_used_tokens", used},
           {"num_total_tokens", used + s.waiting_tokens},
           {"max_total_num_tokens", all},
           {"token_usage", share(used, all)},
           {"cache_hit_rate", share(static_cast<int64_t>(s.cached_tokens), static_cast<int64_t>(s.prompt_tokens))}};
  if (wanted.has("memory"))
    out["memory"] = {{"weight_gb", static_cast<double>(numbers.weight_bytes) / kGib},
                     {"kv_cache_gb", static_cast<double>(numbers.kv_bytes) / kGib},
                     {"graph_gb", static_cast<double>(numbers.planned_bytes) / kGib},
                     {"token_capacity", all}};
  if (const sched::SpeculationStats& spec = s.speculation; spec.on && wanted.has("spec"))
    out["speculative"] = {
        {"accept_length", share(static_cast<int64_t>(s.generated_tokens), static_cast<int64_t>(s.answer_steps))},
        {"accept_rate", share(static_cast<int64_t>(spec.accepted_tokens), static_cast<int64_t>(spec.draft_tokens))}};
  if (wanted.has("queues")) out["queues"] = {{"waiting", s.waiting}};
  return out;
}

}  // namespace

// vLLM's, with more beside it.
void Api::load(Call& call) {
  int64_t running = 0, waiting = 0, used = 0, pages = 0;
  for (const sched::SchedulerStats& s : serving_.scheduler->each()) {
    running += s.running;
    waiting += s.waiting;
    used += used_pages(s);
    pages += s.pages;
  }
  call.json({{"server_load", running + waiting},
             {"running", running},
             {"waiting", waiting},
             {"kv_pages_used", used},
             {"kv_pages", pages}});
}

// SGLang's: a load for each replica. What this server does not count is not there.
void Api::loads(Call& call) {
  const std::vector<sched::SchedulerStats> each = serving_.scheduler->each();
  Wanted wanted;
  if (const auto wrong = read_wanted(call.request.query, each.size(), wanted)) return call.fail(*wrong);
  const auto now = std::chrono::system_clock::now();
  OrderedJson loads = OrderedJson::array();
  for (size_t r = 0; r < each.size(); ++r) {
    if (wanted.rank && *wanted.rank != r) continue;
    OrderedJson one = {{"dp_rank", r}, {"timestamp", std::chrono::duration<double>(now.time_since_epoch()).count()}};
    one.update(load_of(each[r], serving_.metrics->numbers(r), wanted));
    if (wanted.has("core") && serving_.info.contains("max_running_requests"))
      one["max_running_requests"] = serving_.info["max_running_requests"];
    if (const sched::AdapterTable* adapters = serving_.adapters; adapters && wanted.has("lora")) {
      const auto taken = static_cast<int64_t>(adapters->list().size());
      one["lora"] = {
          {"slots_used", taken}, {"slots_total", adapters->slots()}, {"utilization", share(taken, adapters->slots())}};
    }
    loads.push_back(std::move(one));
  }
  call.json({{"timestamp", date_of(now)},
             {"version", REPRISE_VERSION},
             {"dp_rank_count", each.size()},
             {"loads", std::move(loads)}});
}

}  // namespace reprise::server
