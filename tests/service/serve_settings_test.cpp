// What the values of a server's settings mean together, and which of them contradict each other.
#include "service/serve_settings.h"

#include <gtest/gtest.h>

#include <functional>

#include "support/folder.h"

namespace reprise::service::serve_settings_test {
namespace {

using testing_support::Folder;
using testing_support::holds;

ServeSettings resolved(const std::function<void(ServeSettings&)>& change) {
  ServeSettings s;
  s.options.model.model_path = "m";
  change(s);
  const Status ok = s.resolve();
  EXPECT_TRUE(ok.is_ok()) << ok.message();
  return s;
}

std::string problem(const std::function<void(ServeSettings&)>& change) {
  ServeSettings s;
  s.options.model.model_path = "m";
  change(s);
  return s.resolve().message();
}

TEST(ServeSettings, ValuesReachTheirOptions) {
  const ServeSettings s = resolved([](ServeSettings& v) {
    v.port = 1234;
    v.admin_port = 1235;
    v.max_queued = 7;
    v.max_body = 1 << 20;
    v.no_overlap = true;
    v.options.model.disable_radix_cache = true;
    v.options.model.random_seed = 9;
    v.allowed_hosts = "a.example,,b.example";
    v.cors_origins = "https://a.example";
    v.socket_mode = "0640";
    v.log_requests = true;
    v.expert_metrics = "on";
  });
  const ServeOptions& o = s.options;
  EXPECT_TRUE(o.model.serving);
  EXPECT_EQ(o.http.port, 1234);
  EXPECT_EQ(o.http.admin_port, 1235);
  EXPECT_TRUE(o.api.admin_port);
  EXPECT_GE(o.http.max_held_bytes, size_t{2 << 20});
  EXPECT_EQ(o.http.socket_mode, 0640);
  EXPECT_EQ(o.scheduler.max_queued, 7);
  EXPECT_FALSE(o.scheduler.prefix_cache);
  EXPECT_FALSE(o.scheduler.overlap);
  EXPECT_EQ(o.scheduler.seed, 9u);
  EXPECT_EQ(o.api.allowed_hosts, (std::vector<std::string>{"a.example", "b.example"}));
  EXPECT_EQ(o.api.cors_origins, (std::vector<std::string>{"https://a.example"}));
  EXPECT_TRUE(o.api.access_log);
  EXPECT_EQ(o.model.count_experts, engine::CountExperts::On);
  EXPECT_EQ(o.notices, (std::vector<std::string>{"`log_requests`: `access_log`, which has no text"}));
}

TEST(ServeSettings, PrioritiesPreemptBeyondTheThreshold) {
  EXPECT_FALSE(resolved([](ServeSettings&) {}).options.scheduler.preemption_threshold);
  const ServeSettings on = resolved([](ServeSettings& v) { v.priorities = true; });
  EXPECT_EQ(on.options.scheduler.preemption_threshold, 10);
  EXPECT_TRUE(holds(on.options.notices.at(0), "beyond a difference of 10"));
  const ServeSettings gentle = resolved([](ServeSettings& v) { v.priorities = v.no_preemption = true; });
  EXPECT_FALSE(gentle.options.scheduler.preemption_threshold);
  EXPECT_TRUE(holds(gentle.options.notices.at(0), "none is preempted"));
  EXPECT_TRUE(holds(resolved([](ServeSettings& v) { v.preemption_threshold = 3; }).options.notices.at(0),
                    "have no effect without `enable_priority_scheduling`"));
  const ServeSettings prefix = resolved([](ServeSettings& v) {
    v.options.model.schedule_policy = "lpm";
    v.options.model.disable_radix_cache = true;
  });
  EXPECT_EQ(prefix.options.scheduler.policy, sched::Policy::Fcfs);
  EXPECT_TRUE(holds(prefix.options.notices.at(0), "`schedule_policy` lpm has no effect"));
}

TEST(ServeSettings, ContradictionsNameTheirSettings) {
  using Change = std::function<void(ServeSettings&)>;
  const Folder folder;
  folder.write("empty", " \n\r\n");
  const std::vector<std::pair<Change, std::string>> cases{
      {[](auto& v) { v.options.model.schedule_policy = "priority"; }, "`schedule_policy` priority: SGLang has no such"},
      {[](auto& v) { v.options.model.schedule_policy = "lpm", v.priorities = true; },
       "`enable_priority_scheduling` with `schedule_policy` lpm: allowed: fcfs, lof"},
      {[](auto& v) { v.socket_mode = "9"; }, "`socket_mode` 9: allowed: 000 to 777, in octal"},
      {[](auto& v) { v.socket_mode = "1000"; }, "`socket_mode` 1000: allowed"},
      {[](auto& v) { v.port = 80, v.admin_port = 80; }, "`admin_port` 80 is `port`; allowed: another one"},
      {[](auto& v) { v.cors_origins = "nowhere"; }, "`cors_origins`: "},
      {[](auto& v) { v.options.api.log_prompts = true; }, "`log_prompts`: allowed with `request_log` FILE"},
      {[](auto& v) { v.options.profile_dir = "/no/folder"; }, "`profile_dir` /no/folder: there is no such folder"},
      {[&](auto& v) { v.options.api_key_file = folder / "empty"; }, "there is no key in it"}};
  for (const auto& [change, part] : cases) EXPECT_TRUE(holds(problem(change), part)) << problem(change);
}

TEST(ServeSettings, KeysAreTheLinesOfTheFile) {
  const Folder folder;
  folder.write("keys", " first \r\n\nsecond\n");
  const ServeSettings s = resolved([&](ServeSettings& v) { v.options.api_key_file = folder / "keys"; });
  EXPECT_EQ(s.options.api.api_keys, (std::vector<std::string>{"first", "second"}));
}

}  // namespace
}  // namespace reprise::service::serve_settings_test
