// BudgetTest: pages of the fake executor given by a PageBudget to requests that no scheduler has.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sched/page_budget.h"
#include "support/answers.h"
#include "support/executor_proxy.h"

namespace reprise::sched {

// Fails its copies with this code, while there is one.
struct CopyingProxy final : testing_support::ExecutorProxy {
  using ExecutorProxy::ExecutorProxy;
  Status copy_page(kv::PageId from, kv::PageId to) override {
    return fail_code ? error(*fail_code, "the copy failed") : ExecutorProxy::copy_page(from, to);
  }
  std::optional<Code> fail_code;
};

struct BudgetTest : testing::Test {
  void make(int64_t pages, bool prefix_cache) {
    budget.reset();  // it gives pages back to the executor it was made with
    fake = std::make_unique<FakeExecutor>(FakeExecutor::Limits{.pages = pages});
    executor = std::make_unique<CopyingProxy>(*fake);
    budget = std::make_unique<PageBudget>(*executor, prefix_cache);
  }
  LivePtr live(Tokens prompt, int64_t most = 8) {
    auto r = std::make_unique<LiveRequest>(++last_id, std::move(ask(std::move(prompt), most).request),
                                           std::span<const int32_t>());
    r->most_new_tokens = most;
    return r;
  }
  // A request that came and went: the prefix cache keeps all but its last token.
  void remember(Tokens prompt) {
    const LivePtr r = live(std::move(prompt));
    const Status given = budget->admit(*r, 0);
    ASSERT_TRUE(given.is_ok()) << given.message();
    r->checked = r->sequence.size() - 1;
    r->sequence.set_cached(r->checked);
    budget->give_back(*r);
  }
  int64_t free_pages() { return fake->kv_pool().free_pages(); }

  std::unique_ptr<FakeExecutor> fake;
  std::unique_ptr<CopyingProxy> executor;
  std::unique_ptr<PageBudget> budget;
  RequestId last_id = 0;
};

}  // namespace reprise::sched
