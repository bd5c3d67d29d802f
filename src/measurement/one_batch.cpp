#include "measurement/one_batch.h"

#include <algorithm>
#include <memory>
#include <random>

namespace reprise::measurement {
namespace {

using engine::Engine;
using engine::Sequence;
using engine::StepItem;

double device_seconds_since(double begin_us, const Device& device) { return (now_us(device) - begin_us) * 1e-6; }

// The sequences of one repeat; their pages go back to the pool at the end.
class Batch {
 public:
  Batch(Engine& engine, int64_t size, int64_t input_len, uint64_t seed, double temperature)
      : engine_(engine), prompt_len_(input_len), seed_(seed), temperature_(temperature) {
    for (auto& prompt : random_prompts(engine, size, input_len, seed))
      sequences_.push_back(std::make_unique<Sequence>(std::move(prompt)));
  }
  ~Batch() {
    for (auto& s : sequences_) engine_.release(*s);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Status reserve(int64_t tokens) {
    for (auto& s : sequences_) RETURN_IF_ERROR(engine_.reserve(*s, tokens));
    return Status::ok();
  }
  // Every prompt, packed into steps, up to the first token of each.
  Status prefill() {
    while (sequences_.back()->cached() < prompt_len_) {
      int64_t room = engine_.max_step_tokens();
      std::vector<StepItem> items;
      std::vector<size_t> who;
      for (size_t i = 0; i < sequences_.size() && room > 0; ++i) {
        const int64_t left = prompt_len_ - sequences_[i]->cached();
        if (left <= 0) continue;
        const int64_t count = std::min(room, left);
        items.push_back({sequences_[i].get(), count, count == left});
        who.push_back(i);
        room -= count;
      }
      RETURN_IF_ERROR(step(items, who));
    }
    return Status::ok();
  }
  // `steps` times one token of each sequence. Where the engine overlaps steps, as many as it takes are submitted before
  // the first of them is waited for.
  struct Decoded {
    std::vector<double> step_s, gap_us;
  };
  Status decode(int64_t steps, Decoded& out) {
    const int64_t most = engine_.overlaps() ? engine_.max_in_flight() : 1;
    struct Submitted {
      engine::Ticket ticket;
      int64_t end;  // the place of its token in each sequence: all are of one length
    };
    std::vector<Submitted> flights;
    double begin = now_us(engine_.device());
    for (int64_t submitted = 0, done = 0; done < steps;) {
      while (submitted < steps && static_cast<int64_t>(flights.size()) < most) {
        ASSIGN_OR_RETURN(const engine::Ticket ticket, submit(!flights.empty()));
        flights.push_back({ticket, sequences_.front()->size()});
        ++submitted;
      }
      ASSIGN_OR_RETURN(const engine::StepResult result, engine_.wait(flights.front().ticket));
      const int64_t end = flights.front().end;
      flights.erase(flights.begin());
      ++done;
      const double now = now_us(engine_.device());
      out.step_s.push_back((now - begin) * 1e-6);
      begin = now;
      if (result.gap_us) out.gap_us.push_back(*result.gap_us);
      for (size_t i = 0; i < sequences_.size(); ++i)
        if (sequences_[i]->size() == end)
          sequences_[i]->append(result.tokens[i]);
        else
          sequences_[i]->resolve(end, result.tokens[i]);
    }
    return Status::ok();
  }

 private:
  Result<engine::Ticket> submit(bool token_to_come) {
    std::vector<StepItem> items;
    for (auto& s : sequences_) {
      if (token_to_come) s->append_pending();
      items.push_back({s.get(), 1, true});
      if (temperature_ > 0)
        items.back().draw =
            Draw{.scale = static_cast<float>(1 / temperature_), .seed = seed_ + items.size(), .position = s->size()};
    }
    return engine_.submit(items, temperature_ > 0 ? engine::StepOutput::Sampled : engine::StepOutput::NextTokens);
  }
  Status step(const std::vector<StepItem>& items, const std::vector<size_t>& who) {
    ASSIGN_OR_RETURN(std::span<const int32_t> next, engine_.step_greedy(items));
    size_t row = 0;
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].logits > 0) sequences_[who[i]]->append(next[row++]);
    return Status::ok();
  }

  Engine& engine_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int64_t prompt_len_;
  uint64_t seed_;
  double temperature_;
};

}  // namespace

std::vector<std::vector<int32_t>> random_prompts(const Engine& engine, int64_t count, int64_t input_len,
                                                 uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto vocab = static_cast<uint64_t>(engine.config().vocab_size);
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(count));
  for (auto& prompt : out)
    for (int64_t i = 0; i < input_len; ++i) prompt.push_back(static_cast<int32_t>(random() % vocab));
  return out;
}

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

Result<OneBatchRow> measure_one_batch(Engine& engine, const OneBatch& plan, int64_t batch_size, Progress& bar) {
  if (plan.temperature > 0 && !engine.has_sampled_steps())
    return error(Code::Unsupported,
                 "{} has no kernel that draws tokens, so that the host does (bench serving measures that); "
                 "allowed: `temperature` 0",
                 device_kind_name(engine.device().info().kind));
  std::vector<double> prefill, decode, steps, host, gaps, waits;
  const auto waited_s = [&] {
    const auto& member = engine.options().member;
    return member ? member->standings().front().waited_s : 0;
  };
  for (int64_t r = 0; r < plan.repeat; ++r) {
    Batch batch(engine, batch_size, plan.input_len, plan.seed + static_cast<uint64_t>(r), plan.temperature);
    RETURN_IF_ERROR(batch.reserve(plan.input_len + plan.output_len - 1));
    double begin = now_us(engine.device());
    RETURN_IF_ERROR(batch.prefill());
    prefill.push_back(device_seconds_since(begin, engine.device()));
    const auto before = engine.counters();
    const double waited_before = waited_s();
    Batch::Decoded decoded;
    RETURN_IF_ERROR(batch.decode(plan.output_len - 1, decoded));
    double sum = 0;
    for (const double step_s : decoded.step_s) {
      sum += step_s;
      steps.push_back(step_s * 1e3);
    }
    // The first gap is the one after the prefill.
    if (decoded.gap_us.size() > 1) gaps.insert(gaps.end(), decoded.gap_us.begin() + 1, decoded.gap_us.end());
    decode.push_back(sum);
    const auto after = engine.counters();
    if (after.steps > before.steps)
      host.push_back((after.host_s - before.host_s) / static_cast<double>(after.steps - before.steps) * 1e6);
    waits.push_back((waited_s() - waited_before) * 1e6 / static_cast<double>(plan.output_len - 1));
    bar.advance(1, fmt::format("batch {}", batch_size));
  }
  return OneBatchRow{.batch_size = batch_size,
                     .prefill_s = quantile(prefill, 0.5),
                     .decode_s = quantile(decode, 0.5),
                     .step_ms_p50 = quantile(steps, 0.5),
                     .step_ms_p99 = quantile(steps, 0.99),
                     .host_us = quantile(host, 0.5),
                     .gap_us = quantile(gaps, 0.5),
                     .rank_wait_us = quantile(waits, 0.5),
                     .decode_steps = static_cast<double>(plan.output_len - 1)};
}

}  // namespace reprise::measurement
