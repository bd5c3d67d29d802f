#include "sched/scheduler_options.h"

namespace reprise::sched {
namespace {

struct PolicyName {
  Policy policy;
  std::string_view name;
};
constexpr PolicyName kPolicies[] = {{Policy::Fcfs, "fcfs"},
                                    {Policy::LongestPrefix, "lpm"},
                                    {Policy::DfsWeight, "dfs-weight"},
                                    {Policy::Random, "random"},
                                    {Policy::LongestOutput, "lof"}};

}  // namespace

Result<Policy> parse_policy(std::string_view name) {
  for (const PolicyName& p : kPolicies)
    if (p.name == name) return p.policy;
  return invalid("\"{}\" is not a schedule policy; allowed: fcfs, lpm, dfs-weight, random, lof", name);
}

std::string_view policy_name(Policy policy) {
  for (const PolicyName& p : kPolicies)
    if (p.policy == policy) return p.name;
  return "?";
}

}  // namespace reprise::sched
