// Steps in flight: submitting, waiting, and what happens when one of them fails.
#include <algorithm>

#include "base/elapsed.h"
#include "base/log.h"
#include "engine/engine.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

bool awaits_token(const StepItem& item) {
  return item.sequence->pending() && item.sequence->cached() + item.count == item.sequence->size();
}

}  // namespace

// Checks, faults and counts look at a step before the next one may change anything. Ranks that have a copy each of the
// staged inputs have slots of them, too; those that share out sequences take each step together.
bool Engine::overlaps() const {
  return platform_.device->info().asynchronous && !check_ && !faults_.any() && !hook_ && expert_use_.layers() == 0 &&
         (!options_.member || (staging_.is_copied() && options_.sequence_parts == 1));
}

// Drafts are further rows of the decode program, which takes them where kernels read the sizes of a step when it runs.
// Where graphs freeze sizes there are programs for them.
std::string Engine::verify_refusal() const {
  if (!platform_.device->info().live_sizes && !verifies_apart())
    return "the device's graphs freeze the sizes of a step, and it was started without sizes for drafts";
  if (has_states() && max_drafts() == 0)
    return "the model keeps states, and was loaded without room for drafts in them";
  return "";
}

int64_t Engine::max_drafts() const {
  if (!has_states()) return INT64_MAX;
  return stages_[0].ints(models::kStateDraftsInput).empty() ? 0 : options_.most_drafts;
}

int64_t Engine::max_verify_rows() const {
  if (!verify_refusal().empty()) return 0;
  const std::vector<int64_t>& sizes = runners_[verifies_apart() ? kVerifyPhase : 0]->sizes();
  if (verifies_apart()) return sizes.empty() ? runners_[kVerifyPhase]->largest() : sizes.back();
  return sizes.empty() ? max_step_rows() : std::min(max_step_rows(), sizes.back());
}

// Rows of the images that the step's tokens are of; those that it leaves behind are not held any longer.
Status Engine::compute_images(std::span<const StepItem> items) {
  for (const StepItem& item : items) {
    Sequence& s = *item.sequence;
    for (size_t i = 0; i < s.images().size(); ++i) {
      const bool now = s.shows(i, s.cached(), item.count);
      if (!now) {
        if (s.images()[i].end() <= s.cached()) s.set_image_rows(i, nullptr);
        continue;
      }
      if (!tower_) return error(Code::Unsupported, "{} reads no images", files_.config.fields.architecture);
      if (s.images()[i].rows) continue;
      ASSIGN_OR_RETURN(auto rows, tower_->rows(s.image_input(i)));
      if (static_cast<int64_t>(rows->rows.size() / rows->row_bytes) != s.images()[i].count())
        return invalid("an image of {} rows in the places of {} tokens", rows->rows.size() / rows->row_bytes,
                       s.images()[i].count());
      s.set_image_rows(i, std::move(rows));
    }
  }
  return Status::ok();
}

Result<Ticket> Engine::submit(std::span<const StepItem> items, StepOutput output) {
  const auto begin = Clock::now();
  if (uncaptured_) return error(Code::Internal, "graphs of a draft model are captured by set_draft()");
  const auto drafts = [](const StepItem& i) { return !i.drafts.empty(); };
  if (std::any_of(items.begin(), items.end(), drafts)) {
    if (max_verify_rows() == 0) return error(Code::Internal, "a step with drafts: {}", verify_refusal());
    for (const StepItem& item : items)
      if (static_cast<int64_t>(item.drafts.size()) > max_drafts())
        return error(Code::Internal, "{} drafts of one sequence, at most {} fit its state", item.drafts.size(),
                     max_drafts());
  }
  if ((output == StepOutput::Pooled) != (pooled_size_ > 0))
    return error(Code::Unsupported, "{} {}", files_.config.fields.architecture,
                 pooled_size_ > 0 ? "gives vectors or scores here, and no tokens" : "generates, and gives no vectors");
  RETURN_IF_ERROR(compute_images(items));
  Flight& f = flights_.next();
  if (f.ticket != 0) return error(Code::Internal, "{} steps are in flight; wait for the first", flights_.most());
  f.items.assign(items.begin(), items.end());
  f.ends.clear();
  for (const StepItem& item : items) f.ends.push_back(item.sequence->cached() + item.count);
  f.output = output;
  f.told_finite = tells_finite_;
  if (options_.member && output == StepOutput::Sampled && f.wanted(Flight::Logits).empty())
    f.output = StepOutput::Drawn;
  f.fed.clear();
  f.copies = std::exchange(page_copies_, {});
  f.again = f.done = false;
  f.status = Status::ok();
  f.gap_us.reset();
  if (overlaps()) {
    RETURN_IF_ERROR(launch_beside(f));
    counters_.host_s += seconds_since(begin);
  } else {
    RETURN_IF_ERROR(run_alone(f));
    counters_.host_s += seconds_since(begin) - device_s_;
  }
  ++counters_.steps;
  counters_.idle_steps.resize(options_.sequence_parts > 1 ? static_cast<size_t>(options_.sequence_parts) : 0);
  for (size_t part = 0; part < counters_.idle_steps.size(); ++part)
    counters_.idle_steps[part] += std::none_of(
        items.begin(), items.end(), [&](const StepItem& item) { return item.part == static_cast<int>(part); });
  return flights_.give(f);
}

Result<StepResult> Engine::wait(Ticket ticket) {
  Flight* const found = flights_.find(ticket);
  if (!found) return error(Code::Internal, "step {} is not in flight", ticket);
  Flight& f = *found;
  finish(f);
  f.ticket = 0;
  RETURN_IF_ERROR(f.status);
  StepResult result;
  result.logits = f.answers[Flight::Logits].as<float>();
  result.pooled = f.answers[Flight::Pooled].as<const float>();
  result.tokens = f.answers[Flight::Tokens].as<const int32_t>();
  result.logprobs = f.answers[Flight::Logprobs].as<const float>();
  result.top_tokens = f.answers[Flight::TopTokens].as<const int32_t>();
  result.top_logprobs = f.answers[Flight::TopLogprobs].as<const float>();
  result.gap_us = f.gap_us;
  return result;
}

// Computed when it returns.
Status Engine::run_alone(Flight& f) {
  for (Flight& other : flights_.all())
    if (other.ticket != 0) finish(other);
  if (std::any_of(f.items.begin(), f.items.end(), awaits_token))
    return error(Code::Internal, "a token is pending that no step in flight gives");
  staging_.select(0);
  RETURN_IF_ERROR(run(f.items, f.output));
  for (int i = 0; i < Flight::kNames; ++i) {
    Flight::Answer& answer = f.answers[static_cast<size_t>(i)];
    answer.view = {};
    if (const std::string_view name = f.wanted(static_cast<Flight::Name>(i)); !name.empty()) {
      ASSIGN_OR_RETURN(answer.view, outputs_.ask(name));
    }
  }
  RETURN_IF_ERROR(outputs_.arrived());
  if (platform_.device->info().asynchronous)
    // The next step may be submitted before this one's result is looked at.
    for (Flight::Answer& answer : f.answers) {
      const auto* bytes = static_cast<const uint8_t*>(answer.view.data);
      if (!bytes) continue;
      answer.kept.assign(bytes, bytes + static_cast<size_t>(answer.view.elements()) * size_of(answer.view.dtype));
      answer.view.data = answer.kept.data();
    }
  RETURN_IF_ERROR(f.accept());
  f.gap_us = gap_us_;
  f.done = true;
  return Status::ok();
}

// In the device's queue when it returns.
Status Engine::launch_beside(Flight& f) {
  // What a step that failed, or must be computed again, left on the device is no sequence's token.
  if (Flight* before = flights_.before(f); before && (before->again || !before->status.is_ok())) finish(*before);
  // A step that ran alone was done before a sequence waited for its tokens.
  if (const Flight* before = flights_.before(f); before && before->done && before->status.is_ok())
    before->resolve_tokens();
  if (drawn_by_hosts(f)) return run_alone(f);
  if (caches_moved()) {
    for (Flight& other : flights_.all())
      if (other.ticket != 0) finish(other);
    RETURN_IF_ERROR(rebind_if_moved());
  }
  const int slot = flights_.slot_of(f);
  staging_.select(slot);
  RETURN_IF_ERROR(hold_states(f.items));
  ASSIGN_OR_RETURN(f.live, stages_[static_cast<size_t>(slot)].fill(f.items, pool_sizes()));
  const int64_t tokens = f.live.value[models::kTokens];
  StepRunner& runner = runner_of(f.items);
  ASSIGN_OR_RETURN(f.plan, runner.plan(tokens));
  if (f.plan.kind == StepPlan::Kind::Split) return run_alone(f);
  outputs_.drop_parts();
  RETURN_IF_ERROR(feed_tokens(f));

  const Ticket ticket = flights_.last() + 1;
  StepMarks& marks = flights_.marks_of(ticket);
  for (auto* mark : {&marks.begin, &marks.end})
    if (!*mark) {
      ASSIGN_OR_RETURN(*mark, platform_.device->make_event());
    }
  f.begun_us = now_us(*platform_.device);
  RETURN_IF_ERROR(stream_->record(*marks.begin));
  if (options_.member) {
    RETURN_IF_ERROR(tell_beside(f, slot));
    f.message = options_.member->message();
  }
  f.status = runner.launch(f.plan, tokens, f.live, *stream_, f.output);
  outputs_.ran(runner.last_program());
  if (f.status.is_ok()) f.status = f.ask(*outputs_.program(), *platform_.device, *stream_);
  if (f.status.is_ok()) f.status = count_gathered(f.live, f.output);
  if (f.status.is_ok()) f.status = stream_->record(*marks.end);
  marks.ticket = ticket;
  for (const StepItem& item : f.items) item.sequence->advance(item.own());
  return Status::ok();
}

// Tokens that the step before has yet to give go from its result to this step's input on the device; rows that stay in
// their order are one copy.
Status Engine::feed_tokens(Flight& f) {
  const Flight* before = flights_.before(f);
  int64_t end = 0;
  struct Run {
    int64_t from = 0, to = 0, count = 0;
  } run;
  const auto flush = [&] {
    if (run.count > 0)
      staging_.feed(models::kTokensInput, run.to, static_cast<const int32_t*>(before->next_tokens) + run.from,
                    run.count);
    // Followers find the rows by these, and no kernel reads them: the copy follows the upload.
    if (options_.member)
      for (int64_t i = 0; i < run.count; ++i)
        stage().ints(models::kTokensInput)[static_cast<size_t>(run.to + i)] = fed_mark(run.from + i);
    run = {};
  };
  for (const StepItem& item : f.items) {
    end += item.count;
    if (!awaits_token(item)) continue;
    const int64_t from = before && before->output != StepOutput::Logits ? before->result_row(item.sequence) : -1;
    if (from < 0 || before->done) return error(Code::Internal, "a token is pending that no step in flight gives");
    f.fed.push_back({item.sequence, end - 1, item.sequence->size() - 1});
    if (run.count == 0 || run.from + run.count != from || run.to + run.count != end - 1) {
      flush();
      run = {from, end - 1, 0};
    }
    ++run.count;
  }
  flush();
  return Status::ok();
}

// The host's clock is no way out: it may see the end of one step of a run after that of the next.
void Engine::tell_no_times() {
  if (std::exchange(told_no_times_, true)) return;
  log::notice(
      "the device gave no time between two marks: steps that are submitted several at once teach no step times; with "
      "`decode_steps` 1 the host's clock times them");
}

// Steps end in the order of their submission.
void Engine::finish(Flight& f) {
  if (f.done) return;
  if (Flight* before = flights_.before(f)) finish(*before);
  const StepMarks& marks = flights_.marks_of(f.ticket);
  Status done = f.status;
  // A rank that has not launched the step would let this one wait for it without end.
  if (done.is_ok() && options_.member) {
    done = options_.member->await_followers();
    options_.member->want(f.message);
  }
  if (done.is_ok() && !f.again) done = stream_->synchronize(*marks.end);
  if (options_.member) options_.member->have(f.message);
  if (!done.is_ok() && options_.member) {
    options_.member->abort(fmt::format("rank 0: {}", done.message()));
    done = options_.member->lost();
  } else if (!done.is_ok() || f.again) {
    done = compute_again(f, done);
  } else {
    const Device& device = *platform_.device;
    StepRunner& runner = runner_of(f.items);
    // The host may come late to the end of one of several steps; the device's marks do not.
    const std::optional<double> took = runner.clock() == StepClock::Marks
                                           ? device.between_us(*marks.begin, *marks.end)
                                           : now_us(device) - std::max(f.begun_us, finished_us_);
    if (!took) tell_no_times();
    runner.finished(f.plan, f.live.value[models::kTokens], took);
    const StepMarks& last = flights_.marks_of(f.ticket - 1);
    if (last.ticket != 0 && last.ticket == f.ticket - 1) f.gap_us = device.between_us(*last.end, *marks.begin);
  }
  finished_us_ = now_us(*platform_.device);
  if (done.is_ok()) done = f.accept();
  f.status = std::move(done);
  f.done = true;
}

// The step failed, or what it read of the step before was wrong. Its inputs are still in its slot; writing keys and
// values twice does no harm, and the states that it reads are still there (kv/state_pool.h).
Status Engine::compute_again(Flight& f, const Status& failed) {
  (void)stream_->synchronize();  // what is behind it has ended, and is computed again for itself
  bool own = !failed.is_ok();
  for (Ticket t = f.ticket + 1; t <= flights_.last(); ++t) {
    Flight* const behind = flights_.find(t);
    if (!behind) continue;
    Flight& other = *behind;
    other.again = true;
    // Launches have told their failure, and nothing else is done for them on the host: it was the replay behind.
    if (own && failed.code() != Code::DeviceLost && f.status.is_ok() && f.plan.kind != StepPlan::Kind::Replay &&
        other.plan.kind == StepPlan::Kind::Replay && other.status.is_ok()) {
      other.status = failed;
      own = false;
    }
  }
  if (failed.code() == Code::DeviceLost) return failed;
  const int slot = flights_.slot_of(f);
  staging_.select(slot);
  StepStage& stage = stages_[static_cast<size_t>(slot)];
  for (const Flight::FedRow& fed : f.fed)
    stage.ints(models::kTokensInput)[static_cast<size_t>(fed.row)] =
        std::max(0, fed.sequence->tokens()[static_cast<size_t>(fed.position)]);
  // A request that has ended meanwhile has given its pages back, perhaps to another one.
  int64_t row = 0, r = 0;
  for (const StepItem& item : f.items) {
    if (item.sequence->pages().empty()) stage.drop(r, row, item.count);
    row += item.count;
    ++r;
  }
  if (f.again)
    for (const auto& [from, to] : f.copies) RETURN_IF_ERROR(enqueue_copy(from, to));
  StepRunner& runner = runner_of(f.items);
  RETURN_IF_ERROR(!own ? runner.run(f.plan, f.live.value[models::kTokens], f.live, *stream_, f.output)
                       : runner.fall_back(f.plan, f.live, *stream_, f.output, failed));
  outputs_.ran(runner.last_program());
  RETURN_IF_ERROR(f.ask(*outputs_.program(), *platform_.device, *stream_));
  return stream_->synchronize();
}

}  // namespace reprise::engine
