#include "serve/replica.h"

namespace reprise::apps {

void take_share(ModelFlags& flags, const ranks::Processors& processors) {
  if (!processors.take(flags.replica, static_cast<int>(flags.dp_size)) && flags.threads == 0) flags.threads = 1;
}

Replica::Replica(ModelFlags flags, const ranks::Processors& processors)
    : thread_([this, flags = std::move(flags), processors] { live(flags, processors); }) {}

void Replica::live(ModelFlags flags, ranks::Processors processors) {
  take_share(flags, processors);
  flags.bars = false;
  auto opened = open_engine(flags);
  if (opened.is_ok()) engine_ = std::move(*opened);
  opened_.set_value(opened.status());
  if (go_.get_future().get()) scheduler_->run();
  end_.get_future().get();  // clients may still cancel
  scheduler_.reset();
  engine_.reset();
}

sched::Scheduler& Replica::schedule(const sched::SchedulerOptions& options, sched::Observer& observer) {
  scheduler_ = std::make_unique<sched::Scheduler>(*engine_, options, &observer);
  return *scheduler_;
}

void Replica::run() {
  runs_ = true;
  go_.set_value(true);
}

Replica::~Replica() {
  if (!runs_) go_.set_value(false);
  if (scheduler_) scheduler_->stop();
  end_.set_value();
  thread_.join();
}

}  // namespace reprise::apps
