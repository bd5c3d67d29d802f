#include "common/report.h"

#include <algorithm>

#include "base/terminal.h"
#include "see/graph_report.h"
#include "settings/setting.h"

namespace reprise::apps {

using namespace api;
using namespace see;

namespace {

double per_second(int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

double first_token_s(const std::vector<TextResult>& results) {
  double slowest = 0;
  for (const auto& r : results) slowest = std::max(slowest, r.ttft_s);
  return slowest;
}

OrderedJson output_json(const TextResult& r) {
  OrderedJson j;
  j["text"] = r.text ? OrderedJson(*r.text) : OrderedJson(nullptr);
  j["token_ids"] = r.token_ids;
  j["finish_reason"] = sched::finish_reason_name(r.finish);
  if (r.sampled.empty()) return j;
  j["logprobs"] = OrderedJson::array();
  for (const auto& s : r.sampled) {
    OrderedJson one;
    one["token"] = s.token;
    one["logprob"] = s.logprob.value_or(0);
    one["top"] = OrderedJson::array();
    for (const auto& t : s.top) one["top"].push_back({{"token", t.token}, {"logprob", t.logprob}});
    j["logprobs"].push_back(std::move(one));
  }
  return j;
}

std::string megabytes(size_t bytes) { return fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

// What became of drafts. Null where nothing makes any.
OrderedJson speculative_json(const TextGenerator& generator) {
  const sched::SpeculationStats s = generator.speculation();
  if (!s.on) return nullptr;
  OrderedJson j, off = OrderedJson::object();
  for (size_t i = 1; i < s.off.size(); ++i)
    if (s.off[i] > 0) off[std::string(sched::spec_off_name(static_cast<sched::SpecOff>(i)))] = s.off[i];
  const auto per_position = [](std::vector<int64_t> counts) {
    while (!counts.empty() && counts.back() == 0) counts.pop_back();
    return counts;
  };
  j["kind"] = spec::algorithm_name(s.algorithm);
  j["drafts"] = s.drafts;
  j["draft_tokens"] = s.draft_tokens;
  j["accepted_tokens"] = s.accepted_tokens;
  j["drafted_per_position"] = per_position(s.places.drafted);
  j["accepted_per_position"] = per_position(s.places.accepted);
  j["acceptance_length"] = s.drafts ? 1 + static_cast<double>(s.accepted_tokens) / static_cast<double>(s.drafts) : 1.0;
  j["drafting_s"] = s.drafting_s;
  j["off"] = std::move(off);
  return j;
}

OrderedJson generate_json(const std::string& model, engine::Engine& engine, const TextGenerator& generator,
                          std::span<const sched::GenerationRequest> requests, const std::vector<TextResult>& results,
                          bool as_list) {
  const sched::GenerationTimes& times = generator.times();
  OrderedJson j;
  j["model"] = model;
  if (as_list) j["results"] = OrderedJson::array();
  for (size_t i = 0; i < results.size(); ++i) {
    if (as_list) {
      j["results"].push_back({{"prompt_tokens", requests[i].prompt.size()}, {"output", output_json(results[i])}});
    } else {
      j["prompt_tokens"] = requests[i].prompt.size();
      j["output"] = output_json(results[i]);
    }
  }
  const auto load = engine.load_times();
  OrderedJson timing;
  timing["load_s"] = load.load_s;
  timing["compile_s"] = load.compile_s;
  timing["capture_s"] = load.capture_s;
  timing["ttft_s"] = first_token_s(results);
  timing["prefill_tok_s"] = per_second(times.prefill_tokens, times.prefill_s);
  timing["decode_tok_s"] = per_second(times.decode_tokens, times.decode_s);
  j["timing"] = std::move(timing);
  j["graph"] = OrderedJson::parse(settings::as_flags(graph_json(engine).dump()));
  if (OrderedJson drafts = speculative_json(generator); !drafts.is_null()) j["speculative"] = std::move(drafts);
  return j;
}

void print_summary(engine::Engine& engine, const TextGenerator& generator, const std::vector<TextResult>& results) {
  const sched::GenerationTimes& times = generator.times();
  int64_t generated = 0;
  for (const auto& r : results) generated += static_cast<int64_t>(r.token_ids.size());
  const auto m = engine.memory();
  const auto load = engine.load_times();
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print(stderr, "{} {}\n", coloured(Colour::Dim, fmt::format("{:<9}", name), stderr), value);
  };
  const std::string speed = fmt::format("{:.1f} tokens/s", per_second(times.decode_tokens, times.decode_s));
  fmt::print(stderr, "\n");
  line("speed",
       fmt::format("{} ({} generated); prompt {:.0f} tokens/s ({}); first token after {:.2f} s",
                   coloured(Colour::Green, speed, stderr), generated, per_second(times.prefill_tokens, times.prefill_s),
                   times.prefill_tokens, first_token_s(results)));
  line("start",
       fmt::format("load {:.2f} s, compile {:.2f} s, capture {:.2f} s", load.load_s, load.compile_s, load.capture_s));
  if (const sched::SpeculationStats s = generator.speculation(); s.on)
    line("drafts",
         fmt::format("{}: {} of {} tokens came true, in {} steps; {:.2f} tokens a step with drafts",
                     spec::algorithm_name(s.algorithm), s.accepted_tokens, s.draft_tokens, s.steps,
                     s.drafts ? 1 + static_cast<double>(s.accepted_tokens) / static_cast<double>(s.drafts) : 1.0));
  line("graphs", settings::as_flags(graph_summary(engine)));
  line("memory", fmt::format("weights {}, activations {}, KV cache up to {} ({} per page of {} tokens)",
                             megabytes(m.weight_bytes), megabytes(m.activation_bytes), megabytes(m.kv_bytes),
                             megabytes(m.kv_page_bytes), kv::kPageTokens));
  if (engine.draft()) {
    const auto d = engine.draft()->memory();
    line("", fmt::format("draft model: weights {}, activations {}, KV cache up to {}", megabytes(d.weight_bytes),
                         megabytes(d.activation_bytes), megabytes(d.kv_bytes)));
  }
}

}  // namespace reprise::apps
