// shown_progress(): a progress bar for work that says how much of it is done. It appears with the first word and goes
// with the function. One thread.
#pragma once

#include <memory>
#include <string>

#include "base/progress.h"
#include "sched/scorer.h"

namespace reprise::evaluation {

// `unit`: what is counted; "" leaves it out.
inline sched::ScoreProgress shown_progress(std::string title, std::string unit = {}) {
  struct Shown {
    std::unique_ptr<Progress> bar;
    int64_t done = 0;
  };
  return [title = std::move(title), unit = std::move(unit), shown = std::make_shared<Shown>()](int64_t now,
                                                                                               int64_t total) {
    if (!shown->bar) shown->bar = std::make_unique<Progress>(title, static_cast<uint64_t>(total));
    shown->bar->advance(static_cast<uint64_t>(now - shown->done), unit);
    shown->done = now;
  };
}

}  // namespace reprise::evaluation
