// Steps in flight: submitting, waiting, and what happens when one of them fails.
#include <algorithm>

#include "base/elapsed.h"
#include "base/log.h"
#include "engine/engine.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Rows of numbers, or what the device says of each row (op finite_rows).
bool all_finite(const TensorView& v) {
  const int64_t n = v.elements();
  switch (v.dtype) {
    case DType::I32: {
      const auto* said = static_cast<const int32_t*>(v.data);
      return std::all_of(said, said + n, [](int32_t finite) { return finite != 0; });
    }
    case DType::F32: {
      const auto* f = static_cast<const float*>(v.data);
      float sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += f[i] * 0.0f;  // NaN when anything is not finite
      return sum == 0;
    }
    case DType::BF16:
    case DType::F16: {
      const auto* h = static_cast<const uint16_t*>(v.data);
      const uint16_t exponent = v.dtype == DType::BF16 ? 0x7f80 : 0x7c00;
      bool finite = true;
      for (int64_t i = 0; i < n; ++i) finite &= (h[i] & exponent) != exponent;
      return finite;
    }
    default: return true;
  }
}

// The row of the step's result that follows the item's last token; -1: there is none, or it is known when drafts that
// are not certain were judged.
int64_t result_row(std::span<const StepItem> items, const Sequence* sequence) {
  int64_t row = 0;
  for (const StepItem& item : items) {
    row += item.logits;
    if (item.sequence == sequence) return item.logits > 0 && (item.certain || item.drafts.empty()) ? row - 1 : -1;
  }
  return -1;
}

bool awaits_token(const StepItem& item) {
  return item.sequence->pending() && item.sequence->cached() + item.count == item.sequence->size();
}

// A token of this step that a sequence waits for gets its place.
void resolve_tokens(const Flight& f) {
  if (f.output == StepOutput::Logits || f.output == StepOutput::Pooled) return;
  const auto tokens = f.answers[Flight::Tokens].as<const int32_t>();
  int64_t row = 0;
  for (size_t i = 0; i < f.items.size(); ++i) {
    const StepItem& item = f.items[i];
    row += item.logits;
    if (item.logits > 0) item.sequence->resolve(f.ends[i], tokens[static_cast<size_t>(row - 1)]);
  }
}

}  // namespace

std::string_view Flight::wanted(Name name) const {
  const bool sampled = is_sampled(output);
  const bool chosen = sampled || output == StepOutput::NextTokens;
  const auto any = [&](auto says) { return std::any_of(items.begin(), items.end(), says); };
  switch (name) {
    case Finite: return !chosen ? "" : !told_finite ? "hidden" : sampled ? "sampled.finite" : "next_tokens.finite";
    case Tokens: return chosen ? output_name(output) : "";
    case Pooled: return output == StepOutput::Pooled ? output_name(output) : "";
    case Logits:
      return output == StepOutput::Logits ||
                     (sampled && any([](const StepItem& i) { return i.logits > (i.logits_too ? 0 : i.drawn_rows()); }))
                 ? "logits"
                 : "";
    case Logprobs:
    case TopTokens:
    case TopLogprobs:
      if (!sampled || !any([](const StepItem& i) { return i.draw && i.draw->logprobs >= 0; })) return "";
      return name == Logprobs ? "sampled.logprob" : name == TopTokens ? "sampled.top_tokens" : "sampled.top_logprobs";
    case kNames: break;
  }
  return "";
}

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
      if (!tower_) return error(Code::Unsupported, "{} reads no images", config_.fields.architecture);
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
    return error(Code::Unsupported, "{} {}", config_.fields.architecture,
                 pooled_size_ > 0 ? "gives vectors or scores here, and no tokens" : "generates, and gives no vectors");
  RETURN_IF_ERROR(compute_images(items));
  Flight& f = flights_[tickets_ % flights_.size()];
  if (f.ticket != 0) return error(Code::Internal, "{} steps are in flight; wait for the first", flights_.size());
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
  return f.ticket = ++tickets_;
}

Result<StepResult> Engine::wait(Ticket ticket) {
  Flight& f = flights_[(ticket - 1) % flights_.size()];
  if (ticket == 0 || f.ticket != ticket) return error(Code::Internal, "step {} is not in flight", ticket);
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

Flight* Engine::step_before(const Flight& f) {
  const Ticket ticket = f.ticket != 0 ? f.ticket - 1 : tickets_;
  if (ticket == 0) return nullptr;
  Flight& other = flights_[(ticket - 1) % flights_.size()];
  return other.ticket == ticket ? &other : nullptr;
}

// Computed when it returns.
Status Engine::run_alone(Flight& f) {
  for (Flight& other : flights_)
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
  RETURN_IF_ERROR(accept_result(f));
  f.gap_us = gap_us_;
  f.done = true;
  return Status::ok();
}

// In the device's queue when it returns.
Status Engine::launch_beside(Flight& f) {
  // What a step that failed, or must be computed again, left on the device is no sequence's token.
  if (Flight* before = step_before(f); before && (before->again || !before->status.is_ok())) finish(*before);
  // A step that ran alone was done before a sequence waited for its tokens.
  if (const Flight* before = step_before(f); before && before->done && before->status.is_ok()) resolve_tokens(*before);
  if (drawn_by_hosts(f)) return run_alone(f);
  if (caches_moved()) {
    for (Flight& other : flights_)
      if (other.ticket != 0) finish(other);
    RETURN_IF_ERROR(rebind_if_moved());
  }
  const auto slot = static_cast<int>(tickets_ % flights_.size());
  staging_.select(slot);
  RETURN_IF_ERROR(hold_states(f.items));
  ASSIGN_OR_RETURN(f.live, stages_[static_cast<size_t>(slot)].fill(f.items, pool_sizes()));
  const int64_t tokens = f.live.value[models::kTokens];
  StepRunner& runner = runner_of(f.items);
  ASSIGN_OR_RETURN(f.plan, runner.plan(tokens));
  if (f.plan.kind == StepPlan::Kind::Split) return run_alone(f);
  outputs_.drop_parts();
  RETURN_IF_ERROR(feed_tokens(f));

  StepMarks& marks = marks_[(tickets_ + 1) % marks_.size()];
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
  if (f.status.is_ok()) f.status = ask_for_result(f);
  if (f.status.is_ok()) f.status = count_gathered(f.live, f.output);
  if (f.status.is_ok()) f.status = stream_->record(*marks.end);
  marks.ticket = tickets_ + 1;
  for (const StepItem& item : f.items) item.sequence->advance(item.own());
  return Status::ok();
}

// Tokens that the step before has yet to give go from its result to this step's input on the device; rows that stay in
// their order are one copy.
Status Engine::feed_tokens(Flight& f) {
  const Flight* before = step_before(f);
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
    const int64_t from = before && before->output != StepOutput::Logits ? result_row(before->items, item.sequence) : -1;
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

Status Engine::ask_for_result(Flight& f) {
  for (int i = 0; i < Flight::kNames; ++i) {
    Flight::Answer& answer = f.answers[static_cast<size_t>(i)];
    answer.view = {};
    const std::string_view name = f.wanted(static_cast<Flight::Name>(i));
    if (name.empty()) continue;
    ASSIGN_OR_RETURN(answer.view, outputs_.program()->output(name));
    if (i == Flight::Tokens) f.next_tokens = answer.view.data;
    const size_t bytes = static_cast<size_t>(answer.view.elements()) * size_of(answer.view.dtype);
    ASSIGN_OR_RETURN(answer.view.data, answer.copy.ask(*platform_.device, *stream_, answer.view.data, bytes));
  }
  return Status::ok();
}

// What the step gave is there; a token that a sequence waits for gets its place.
Status Engine::accept_result(const Flight& f) {
  if (f.output == StepOutput::Logits) return Status::ok();
  if (f.output == StepOutput::Pooled)
    return all_finite(f.answers[Flight::Pooled].view)
               ? Status::ok()
               : error(Code::Internal, "a pooled row is not finite; something broke in the model");
  // Where logits are not seen, what they come from is: NaN upstream must not become a token.
  if (!all_finite(f.answers[Flight::Finite].view))
    return error(Code::Internal, "a hidden state is not a finite number; something broke in the model");
  resolve_tokens(f);
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
  if (Flight* before = step_before(f)) finish(*before);
  const StepMarks& marks = marks_[f.ticket % marks_.size()];
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
    const StepMarks& last = marks_[(f.ticket - 1) % marks_.size()];
    if (last.ticket != 0 && last.ticket == f.ticket - 1) f.gap_us = device.between_us(*last.end, *marks.begin);
  }
  finished_us_ = now_us(*platform_.device);
  if (done.is_ok()) done = accept_result(f);
  f.status = std::move(done);
  f.done = true;
}

// The step failed, or what it read of the step before was wrong. Its inputs are still in its slot; writing keys and
// values twice does no harm, and the states that it reads are still there (kv/state_pool.h).
Status Engine::compute_again(Flight& f, const Status& failed) {
  (void)stream_->synchronize();  // what is behind it has ended, and is computed again for itself
  bool own = !failed.is_ok();
  for (Ticket t = f.ticket + 1; t <= tickets_; ++t) {
    Flight& other = flights_[(t - 1) % flights_.size()];
    if (other.ticket != t) continue;
    other.again = true;
    // Launches have told their failure, and nothing else is done for them on the host: it was the replay behind.
    if (own && failed.code() != Code::DeviceLost && f.status.is_ok() && f.plan.kind != StepPlan::Kind::Replay &&
        other.plan.kind == StepPlan::Kind::Replay && other.status.is_ok()) {
      other.status = failed;
      own = false;
    }
  }
  if (failed.code() == Code::DeviceLost) return failed;
  const auto slot = static_cast<int>((f.ticket - 1) % flights_.size());
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
  RETURN_IF_ERROR(ask_for_result(f));
  return stream_->synchronize();
}

}  // namespace reprise::engine
