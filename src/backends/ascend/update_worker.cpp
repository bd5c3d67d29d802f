#include "backends/ascend/update_worker.h"

#include "base/hooks.h"

namespace reprise::ascend {

Result<std::unique_ptr<UpdateWorker>> UpdateWorker::make(const std::shared_ptr<Context>& context) {
  ASSIGN_OR_RETURN(auto stream, AscendStream::make(context));
  return std::unique_ptr<UpdateWorker>(new UpdateWorker(context, std::move(stream)));
}

UpdateWorker::UpdateWorker(std::shared_ptr<Context> context, std::unique_ptr<AscendStream> stream)
    : context_(std::move(context)), stream_(std::move(stream)), thread_(start_thread("update", [this] { work(); })) {}

UpdateWorker::~UpdateWorker() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void UpdateWorker::submit(Job job) {
  const Library& acl = context_->library();
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(job), acl.ascendSimHostMicros ? acl.ascendSimHostMicros() : 0});
  }
  changed_.notify_all();
}

void UpdateWorker::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
}

void UpdateWorker::work() {
  const Library& acl = context_->library();
  (void)context_->attach();  // a failure shows in the first call
  for (;;) {
    Waiting next;
    {
      std::unique_lock lock(mutex_);
      busy_ = false;
      changed_.notify_all();
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      next = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
    }
    // In modelled time this thread cannot begin before the work was submitted to it.
    if (acl.ascendSimHostAdvanceTo) acl.ascendSimHostAdvanceTo(next.host_us);
    next.job(*stream_);
  }
}

}  // namespace reprise::ascend
