#include "tuning/tuner.h"

#include <algorithm>
#include <set>

namespace reprise::tuning {
namespace {

constexpr double kSame = 0.02;        // differences that are no reason to take more threads
constexpr double kNearlyBest = 0.97;  // of the speed of reading prompts that a smaller step must have
constexpr int64_t kChunks[] = {256, 512, 1024, 2048};
constexpr int64_t kMeasuredAnswer = 32;  // tokens of an answer that are measured

std::vector<int64_t> thread_candidates(const TuneBounds& b) {
  if (!b.threads_matter) return {0};
  std::vector<int64_t> out;
  for (int64_t n = b.processors; n >= 1 && out.size() < 4; n = n == 1 ? 0 : (n + 1) / 2) out.push_back(n);
  return out;  // the most first
}

// Up to the first that holds a long prompt as a whole: larger ones would run the same step.
std::vector<int64_t> chunk_candidates(const TrafficProfile& traffic, const TuneBounds& b) {
  std::vector<int64_t> out;
  for (const int64_t c : kChunks) {
    if (c > b.context_length) break;
    out.push_back(c);
    if (c >= traffic.prompt.large) break;
  }
  return out;
}

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

std::string sizes_text(const std::set<int64_t>& sizes) { return fmt::format("{}", fmt::join(sizes, ",")); }

// Powers of two up to the largest, and what the traffic has most of.
std::set<int64_t> sizes_for(const Spread& spread, int64_t from) {
  std::set<int64_t> out{spread.usual, spread.large, spread.largest};
  for (int64_t n = from; n < spread.largest; n *= 2) out.insert(n);
  return out;
}

class Tuner {
 public:
  Tuner(const TrafficProfile& traffic, const TuneBounds& bounds, const Measure& measure, Progress& bar)
      : traffic_(traffic), bounds_(bounds), measure_(measure), bar_(bar) {}

  Result<Tuning> run() {
    RETURN_IF_ERROR(choose_threads());
    RETURN_IF_ERROR(choose_chunk());
    choose_room();
    choose_sizes();
    return std::move(out_);
  }

 private:
  int64_t input(int64_t wanted) const {
    return std::clamp<int64_t>(wanted, 2, std::max<int64_t>(2, bounds_.context_length - kMeasuredAnswer));
  }
  int64_t output() const { return std::clamp<int64_t>(traffic_.answer.usual, 2, kMeasuredAnswer); }

  // Seconds of a usual request while `running` of its kind share the machine.
  double request_s(const CandidateSpeed& m, int64_t running) const {
    const double batch = static_cast<double>(running);
    return static_cast<double>(traffic_.prompt.usual) / m.prefill_tok_s +
           static_cast<double>(traffic_.answer.usual) * batch / m.decode_tok_s;
  }

  Result<Tried> try_one(const char* setting, int64_t value, const Candidate& c, int64_t batch, int64_t tokens) {
    ASSIGN_OR_RETURN(const CandidateSpeed m, measure_(c, batch, tokens, output()));
    if (m.prefill_tok_s <= 0 || m.decode_tok_s <= 0)
      return error(Code::Internal, "a measurement with {} {} gave no speed", setting, value);
    bar_.advance(1, fmt::format("{} {}", setting, value));
    return Tried{setting, value, m.prefill_tok_s, m.decode_tok_s, request_s(m, batch)};
  }

  Status choose_threads() {
    std::vector<Tried> tried;
    for (const int64_t n : thread_candidates(bounds_)) {
      ASSIGN_OR_RETURN(Tried t, try_one("threads", n, {n, 0}, traffic_.running.usual, input(traffic_.prompt.usual)));
      tried.push_back(std::move(t));
    }
    if (!bounds_.threads_matter) return Status::ok();
    double best = tried.front().request_s;
    for (const Tried& t : tried) best = std::min(best, t.request_s);
    // The fewest of those that are about as fast.
    Tried* chosen = &tried.front();
    for (Tried& t : tried)
      if (t.request_s <= best * (1 + kSame)) chosen = &t;
    chosen->chosen = true;
    threads_ = chosen->value;
    out_.settings.push_back(
        {"threads", threads_,
         fmt::format("a usual request takes {:.3f} s with {} beside it; {} of {} numbers of threads tried",
                     chosen->request_s, traffic_.running.usual - 1,
                     tried.size() == 1 ? "the only one" : "the fewest within 2 % of the best", tried.size())});
    out_.tried.insert(out_.tried.end(), tried.begin(), tried.end());
    return Status::ok();
  }

  Status choose_chunk() {
    std::vector<Tried> tried;
    for (const int64_t c : chunk_candidates(traffic_, bounds_)) {
      ASSIGN_OR_RETURN(Tried t, try_one("chunked-prefill-size", c, {threads_, c}, 1, input(traffic_.prompt.large)));
      tried.push_back(std::move(t));
    }
    if (tried.empty()) {
      out_.notes.push_back(
          fmt::format("a context of {} tokens leaves no choice of chunked-prefill-size", bounds_.context_length));
      return Status::ok();
    }
    double best = 0;
    for (const Tried& t : tried) best = std::max(best, t.prefill_tok_s);
    const auto chosen =
        std::find_if(tried.begin(), tried.end(), [&](const Tried& t) { return t.prefill_tok_s >= kNearlyBest * best; });
    chosen->chosen = true;
    chunk_ = chosen->value;
    out_.settings.push_back(
        {"chunked-prefill-size", chunk_,
         fmt::format(
             "prompts of {} tokens at {:.0f} tok/s, the best size has {:.0f}; a step holds up others for about "
             "{:.0f} ms",
             input(traffic_.prompt.large), chosen->prefill_tok_s, best,
             1e3 * static_cast<double>(std::min(chunk_, input(traffic_.prompt.large))) / chosen->prefill_tok_s)});
    out_.tried.insert(out_.tried.end(), tried.begin(), tried.end());
    return Status::ok();
  }

  void choose_room() {
    const int64_t running = traffic_.running.largest;
    out_.settings.push_back(
        {"max-running-requests", running, fmt::format("so many ran at a time; usually {}", traffic_.running.usual)});
    const int64_t each = std::min(traffic_.prompt.large + traffic_.answer.large, bounds_.context_length);
    const int64_t wanted = running * rounded_up(each, bounds_.page_tokens);
    // A tenth for prefixes that the next requests may find.
    int64_t tokens = rounded_up(wanted + wanted / 10, bounds_.page_tokens);
    std::string reason = fmt::format("{} requests of {} tokens in pages of {}, and a tenth for the prefix cache",
                                     running, each, bounds_.page_tokens);
    if (bounds_.most_cached_tokens > 0 && tokens > bounds_.most_cached_tokens) {
      out_.notes.push_back(
          fmt::format("{}: {} tokens of KV cache are wanted, memory has room for {}; requests will wait", reason,
                      tokens, bounds_.most_cached_tokens));
      tokens = bounds_.most_cached_tokens / bounds_.page_tokens * bounds_.page_tokens;
      reason = "what memory has room for";
    }
    out_.settings.push_back({"max-total-tokens", tokens, reason});
  }

  void choose_sizes() {
    if (bounds_.live_sizes) {
      out_.notes.push_back("one captured graph serves every size on this device: sizes need no tuning");
      return;
    }
    out_.settings.push_back({"graph-decode-sizes", sizes_text(sizes_for(traffic_.running, 1)),
                             "powers of two, and the numbers of requests that were there most"});
    std::set<int64_t> prompts;
    for (const int64_t n : sizes_for(traffic_.prompt, 64))
      prompts.insert(std::min(rounded_up(n, 16), chunk_ ? chunk_ : n));
    out_.settings.push_back({"graph-prefill-sizes", sizes_text(prompts),
                             "powers of two up to a step, and the lengths of prompts that were there most"});
  }

  const TrafficProfile& traffic_;
  const TuneBounds& bounds_;
  const Measure& measure_;
  Progress& bar_;
  int64_t threads_ = 0, chunk_ = 0;
  Tuning out_;
};

std::string traffic_line(const TrafficProfile& t) {
  return fmt::format("{}: prompts of {} tokens (95 of 100 up to {}), answers of {} (up to {}), {} at a time (up to {})",
                     t.requests > 0 ? fmt::format("{} requests of a log", t.requests) : std::string("given by flags"),
                     t.prompt.usual, t.prompt.large, t.answer.usual, t.answer.large, t.running.usual,
                     t.running.largest);
}

}  // namespace

uint64_t tune_steps(const TrafficProfile& traffic, const TuneBounds& b) {
  return thread_candidates(b).size() + chunk_candidates(traffic, b).size();
}

Result<Tuning> tune(const TrafficProfile& traffic, const TuneBounds& bounds, const Measure& measure, Progress& bar) {
  return Tuner(traffic, bounds, measure, bar).run();
}

std::string tuned_file(const Tuning& t, const std::string& model, const std::string& machine,
                       const TrafficProfile& traffic) {
  std::string out = fmt::format("// Written by `reprise tune` for {}\n// on {}.\n// Traffic {}.\n{{\n", model, machine,
                                traffic_line(traffic));
  out += fmt::format("  \"model-path\": {}", Json(model).dump());
  for (const TunedSetting& s : t.settings)
    out += fmt::format(",\n  // {}\n  \"{}\": {}", s.reason, s.name, s.value.dump());
  return out + "\n}\n";
}

std::string tuning_text(const Tuning& t) {
  std::string out =
      fmt::format("{:<22}{:>8}{:>16}{:>15}{:>13}\n", "tried", "", "prefill tok/s", "decode tok/s", "request s");
  for (const Tried& one : t.tried)
    out += fmt::format("{:<22}{:>8}{:>16.1f}{:>15.1f}{:>13.3f}{}\n", one.setting, one.value, one.prefill_tok_s,
                       one.decode_tok_s, one.request_s, one.chosen ? "  chosen" : "");
  out += "\n";
  for (const TunedSetting& s : t.settings) out += fmt::format("{:<22}{:>8}  {}\n", s.name, s.value.dump(), s.reason);
  for (const std::string& n : t.notes) out += fmt::format("note: {}\n", n);
  return out;
}

OrderedJson tuning_json(const Tuning& t, const TrafficProfile& traffic) {
  const auto spread = [](const Spread& s) {
    return OrderedJson{{"usual", s.usual}, {"large", s.large}, {"largest", s.largest}};
  };
  OrderedJson j;
  j["traffic"] = {{"requests", traffic.requests},
                  {"prompt_tokens", spread(traffic.prompt)},
                  {"answer_tokens", spread(traffic.answer)},
                  {"running", spread(traffic.running)}};
  j["tried"] = OrderedJson::array();
  for (const Tried& one : t.tried)
    j["tried"].push_back({{"setting", one.setting},
                          {"value", one.value},
                          {"prefill_tok_s", one.prefill_tok_s},
                          {"decode_tok_s", one.decode_tok_s},
                          {"request_s", one.request_s},
                          {"chosen", one.chosen}});
  j["settings"] = OrderedJson::object();
  for (const TunedSetting& s : t.settings) j["settings"][s.name] = {{"value", s.value}, {"reason", s.reason}};
  j["notes"] = t.notes;
  return j;
}

}  // namespace reprise::tuning
