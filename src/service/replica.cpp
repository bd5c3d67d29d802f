#include "service/replica.h"

namespace reprise::service {

void take_share(RunSettings& settings, const ranks::Processors& processors) {
  const int ranks = static_cast<int>(settings.tp_size);
  if (!processors.take(settings.replica * ranks, static_cast<int>(settings.replicas()) * ranks) &&
      settings.threads == 0)
    settings.threads = 1;
}

Replica::Replica(RunSettings settings, const ranks::Processors& processors)
    : thread_([this, settings = std::move(settings), processors] { live(settings, processors); }) {}

void Replica::live(RunSettings settings, ranks::Processors processors) {
  take_share(settings, processors);
  settings.bars = false;
  auto opened = open_engine(settings);
  if (opened.is_ok()) engine_ = std::move(*opened);
  opened_.set_value(opened.status());
  if (go_.get_future().get()) {
    scheduler_->run();
    scheduler_->share_loss(lost_());
  }
  stopped_.set_value();
  end_.get_future().get();
  scheduler_.reset();
  engine_.reset();
}

sched::Scheduler& Replica::schedule(const sched::SchedulerOptions& options, std::unique_ptr<sched::Observer> observer) {
  observer_ = std::move(observer);
  scheduler_ = std::make_unique<sched::Scheduler>(*engine_, options, observer_.get());
  return *scheduler_;
}

void Replica::run(std::function<Status()> lost) {
  lost_ = std::move(lost);
  runs_ = true;
  go_.set_value(true);
}

void Replica::wait_stopped() {
  if (waited_) return;
  waited_ = true;
  if (!runs_) go_.set_value(false);
  stopped_.get_future().get();
}

void Replica::end() {
  if (!thread_.joinable()) return;
  if (scheduler_) scheduler_->stop();
  wait_stopped();
  end_.set_value();
  thread_.join();
}

Result<Replicas> open_other_replicas(const RunSettings& settings, int64_t tokens, const ranks::Processors& processors) {
  Replicas out;
  for (int r = 1; r < static_cast<int>(settings.replicas()); ++r) {
    RunSettings mine = settings;
    mine.replica = r;
    if (!settings.fronts.empty()) mine.member = settings.fronts[static_cast<size_t>(r)];
    mine.max_total_tokens = tokens;
    out.push_back(std::make_unique<Replica>(std::move(mine), processors));
  }
  for (size_t r = 0; r < out.size(); ++r) RETURN_IF_ERROR(out[r]->opened().at(fmt::format("replica {}", r + 1)));
  return out;
}

}  // namespace reprise::service
