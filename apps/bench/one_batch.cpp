#include "bench/one_batch.h"

#include <algorithm>
#include <memory>
#include <random>

namespace reprise::apps {
namespace {

using engine::Engine;
using engine::Sequence;
using engine::StepItem;

double device_seconds_since(double begin_us, const Device& device) { return (now_us(device) - begin_us) * 1e-6; }

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

// The sequences of one repeat; their pages go back to the pool at the end.
class Batch {
 public:
  Batch(Engine& engine, int64_t size, int64_t input_len, uint64_t seed) : engine_(engine), prompt_len_(input_len) {
    std::mt19937_64 random(seed);
    const auto vocab = static_cast<uint64_t>(engine.config().vocab_size);
    for (int64_t i = 0; i < size; ++i) {
      std::vector<int32_t> prompt(static_cast<size_t>(input_len));
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab);
      sequences_.push_back(std::make_unique<Sequence>(prompt));
    }
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
  Status decode() {
    std::vector<StepItem> items;
    std::vector<size_t> who;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      items.push_back({sequences_[i].get(), 1, true});
      who.push_back(i);
    }
    return step(items, who);
  }

 private:
  Status step(const std::vector<StepItem>& items, const std::vector<size_t>& who) {
    ASSIGN_OR_RETURN(std::span<const int32_t> next, engine_.step_greedy(items));
    size_t row = 0;
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].wants_logits) sequences_[who[i]]->append(next[row++]);
    return Status::ok();
  }

  Engine& engine_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int64_t prompt_len_;
};

}  // namespace

Result<OneBatchRow> measure_one_batch(Engine& engine, const OneBatch& plan, int64_t batch_size, Progress& bar) {
  std::vector<double> prefill, decode, steps, host;
  for (int64_t r = 0; r < plan.repeat; ++r) {
    Batch batch(engine, batch_size, plan.input_len, plan.seed + static_cast<uint64_t>(r));
    RETURN_IF_ERROR(batch.reserve(plan.input_len + plan.output_len - 1));
    double begin = now_us(engine.device());
    RETURN_IF_ERROR(batch.prefill());
    prefill.push_back(device_seconds_since(begin, engine.device()));
    double sum = 0;
    const auto before = engine.counters();
    for (int64_t i = 1; i < plan.output_len; ++i) {
      begin = now_us(engine.device());
      RETURN_IF_ERROR(batch.decode());
      const double s = device_seconds_since(begin, engine.device());
      sum += s;
      steps.push_back(s * 1e3);
    }
    decode.push_back(sum);
    const auto after = engine.counters();
    if (after.steps > before.steps)
      host.push_back((after.host_s - before.host_s) / static_cast<double>(after.steps - before.steps) * 1e6);
    bar.advance(1, fmt::format("batch {}", batch_size));
  }
  return OneBatchRow{batch_size,           quantile(prefill, 0.5), quantile(decode, 0.5),
                     quantile(steps, 0.5), quantile(steps, 0.99),  quantile(host, 0.5)};
}

}  // namespace reprise::apps
