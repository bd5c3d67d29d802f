#include "evaluation/answers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/elapsed.h"
#include "base/progress.h"
#include "client/server_probe.h"

namespace reprise::evaluation {

Result<Answers> ask_model(api::TextGenerator& generator, const ModelQuestions& questions) {
  Answers out;
  const auto begin = std::chrono::steady_clock::now();
  Progress bar(std::string(questions.title), questions.count * static_cast<uint64_t>(questions.max_new_tokens));
  const size_t together = std::min(questions.together, questions.count);
  for (size_t first = 0; first < questions.count; first += together) {
    std::vector<sched::GenerationRequest> requests;
    for (size_t i = first; i < std::min(first + together, questions.count); ++i) {
      ASSIGN_OR_RETURN(sched::GenerationRequest request, questions.request(i));
      requests.push_back(std::move(request));
    }
    ASSIGN_OR_RETURN(std::vector<api::TextResult> results, generator.run(requests, [&](size_t, std::string_view) {
      bar.advance(1);
      return true;
    }));
    for (api::TextResult& r : results) {
      out.tokens += static_cast<int64_t>(r.token_ids.size());
      out.cut += r.finish == sched::FinishReason::Length;
      out.texts.push_back(std::move(r.text).value_or(""));
    }
  }
  out.seconds = seconds_since(begin);
  return out;
}

Result<Answers> ask_server(const AskedServer& server, const ServerQuestions& questions) {
  ASSIGN_OR_RETURN(const auto http,
                   client::HttpCalls::open(server.base_url, client::call_options(server.api_key, server.timeout_s)));
  client::GenerationStyle style = questions.style;
  style.model = server.model;
  if (style.model.empty()) {
    ASSIGN_OR_RETURN(const client::ServerFacts facts, client::probe_server(*http, server.base_url, server.model_from));
    style.model = facts.model;
  }
  client::LoadOptions load;
  load.max_concurrency = server.parallel;
  Progress bar(std::string(questions.title), questions.calls.size());
  client::LoadRun run =
      client::run_load(*http, questions.calls, style, load, [&](const client::GenerationRecord&) { bar.advance(1); });
  Answers out;
  out.seconds = run.duration_s;
  for (size_t i = 0; i < run.records.size(); ++i) {
    client::GenerationRecord& r = run.records[i];
    if (!r.ok)
      return error(Code::Invalid, "{}: question {} was not answered: {}", server.base_url, questions.name(i),
                   r.problem);
    out.tokens += r.output_tokens;
    out.cut += r.finish_reason == "length";
    out.texts.push_back(std::move(r.text));
  }
  return out;
}

}  // namespace reprise::evaluation
