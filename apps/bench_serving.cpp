// `reprise bench serving`: the speed of a server under load, ours or any with OpenAI's API.
#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "client/server_probe.h"
#include "command.h"
#include "common/flags.h"
#include "measurement/serving_prompts.h"
#include "measurement/serving_report.h"

namespace reprise::apps {
namespace {

constexpr int64_t kUnknownVocabulary = 1000;  // every model has these

struct ServingFlags {
  std::string base_url = "http://127.0.0.1:30000", endpoint = "completions", model, api_key, rate = "inf",
              prompt_form = "auto", extra_body, output, plot;
  std::vector<int64_t> concurrency;
  measurement::PromptOptions prompts;
  std::optional<int64_t> vocab_size;
  int64_t seed = 1, warmups = 1;
  double temperature = 0, timeout_s = 600;
  bool ignore_eos = false, details = false, json = false;

  Status check();
  double request_rate = std::numeric_limits<double>::infinity();
  client::GenerationStyle style;
};

Status ServingFlags::check() {
  ASSIGN_OR_RETURN(style.endpoint, client::parse_endpoint(endpoint));
  if (rate != "inf") {
    char* end = nullptr;
    request_rate = std::strtod(rate.c_str(), &end);
    if (end == rate.c_str() || *end || !(request_rate > 0))
      return invalid("--request-rate \"{}\": allowed: a number above 0, or inf", rate);
  }
  const bool from_file = prompts.dataset == "gsm8k" || prompts.dataset == "file";
  if (from_file && prompts.path.empty()) return invalid("--dataset {} needs --data-path FILE", prompts.dataset);
  if (style.endpoint == client::Endpoint::Chat && prompt_form == "ids")
    return invalid("--prompt-form ids: chats are text; allowed: auto, text");
  if (!extra_body.empty()) {
    ASSIGN_OR_RETURN(style.extra, parse_ordered_json(extra_body, "--extra-request-body"));
    if (!style.extra.is_object()) return invalid("--extra-request-body: a JSON object is expected");
  }
  if (prompts.dataset == "gsm8k") style.stop = {"Question:"};
  style.model = model;
  style.temperature = temperature;
  style.ignore_eos = ignore_eos;
  prompts.seed = static_cast<uint64_t>(seed);
  return Status::ok();
}

// Fills in what only the server knows.
Status ask_server(ServingFlags& f, client::HttpCalls& http) {
  if (f.model.empty() || !f.vocab_size) {
    auto facts = client::probe_server(http, f.base_url, "--model");
    if (!facts && f.model.empty()) return facts.status();
    if (f.model.empty()) f.model = facts->model;
    if (!f.vocab_size && facts) f.vocab_size = facts->vocab_size;
  }
  f.style.model = f.model;
  f.prompts.vocab_size = f.vocab_size.value_or(kUnknownVocabulary);
  f.prompts.ids = f.prompt_form == "ids";
  const bool random = f.prompts.dataset == "random" || f.prompts.dataset == "sharegpt-like";
  if (!random || f.prompt_form != "auto" || f.style.endpoint == client::Endpoint::Chat) return Status::ok();
  const client::GenerationRecord tried = client::call_once(http, {client::PromptIds{1, 2, 3}, 3, 1}, f.style);
  f.prompts.ids = tried.ok;
  if (!tried.ok) log::info("prompts are sent as text: token ids were answered with \"{}\"", tried.problem);
  return Status::ok();
}

OrderedJson details_of(const client::LoadRun& run) {
  OrderedJson d;
  for (const char* key :
       {"start_times", "input_lens", "output_lens", "ttfts", "itls", "latencies", "generated_texts", "errors"})
    d[key] = OrderedJson::array();
  for (const client::GenerationRecord& r : run.records) {
    d["start_times"].push_back(r.begin_s);
    d["input_lens"].push_back(r.prompt_tokens);
    d["output_lens"].push_back(r.output_tokens);
    d["ttfts"].push_back(r.ttft_s);
    d["itls"].push_back(r.itl_s);
    d["latencies"].push_back(r.latency_s);
    d["generated_texts"].push_back(r.text);
    d["errors"].push_back(r.problem);
  }
  return d;
}

Result<client::LoadRun> run_row(const ServingFlags& f, client::HttpCalls& http, int64_t concurrency, uint64_t seed,
                                const std::string& title) {
  measurement::PromptOptions prompts = f.prompts;
  prompts.seed = seed;
  ASSIGN_OR_RETURN(const auto calls, measurement::serving_calls(prompts));
  Progress bar(title, calls.size());
  int64_t failed = 0;
  return client::run_load(http, calls, f.style, {f.request_rate, concurrency, seed},
                          [&](const client::GenerationRecord& r) {
                            failed += !r.ok;
                            bar.advance(1, failed > 0 ? fmt::format("{} failed", failed) : std::string());
                          });
}

Status warm_up(const ServingFlags& f, client::HttpCalls& http) {
  if (f.warmups == 0) return Status::ok();
  measurement::PromptOptions prompts = f.prompts;
  prompts.seed = ~prompts.seed;  // prompts that are not asked again
  prompts.count = f.warmups;
  ASSIGN_OR_RETURN(const auto calls, measurement::serving_calls(prompts));
  const client::LoadRun run = client::run_load(http, calls, f.style, {});
  for (const client::GenerationRecord& r : run.records)
    if (!r.ok) return error(Code::Invalid, "{}: a warm-up request failed: {}", f.base_url, r.problem);
  return Status::ok();
}

Status run_serving(ServingFlags& f) {
  ASSIGN_OR_RETURN(const auto http, client::HttpCalls::open(f.base_url, client::call_options(f.api_key, f.timeout_s)));
  RETURN_IF_ERROR(ask_server(f, *http));
  RETURN_IF_ERROR(warm_up(f, *http));
  OrderedJson report;
  report["base_url"] = f.base_url;
  report["endpoint"] = f.endpoint;
  report["model"] = f.model;
  report["dataset"] = f.prompts.dataset;
  report["prompts"] = f.prompts.dataset == "gsm8k" || !f.prompts.ids ? "text" : "ids";
  if (f.prompts.dataset == "file") report["prompts"] = "file";
  if (f.prompts.dataset == "random") {
    report["random_input_len"] = f.prompts.input_len;
    report["random_output_len"] = f.prompts.output_len;
    report["random_range_ratio"] = f.prompts.range_ratio;
  }
  report["num_prompts"] = f.prompts.count;
  report["seed"] = f.seed;
  report["ignore_eos"] = f.ignore_eos;
  std::vector<OrderedJson> rows;
  int64_t completed = 0;
  const std::vector<int64_t> loads = f.concurrency.empty() ? std::vector<int64_t>{0} : f.concurrency;
  for (size_t i = 0; i < loads.size(); ++i) {
    const std::string title = loads[i] > 0 ? fmt::format("{} in flight", loads[i]) : "requests";
    // Prompts of its own for each row, so that none finds those of an earlier one in a cache.
    ASSIGN_OR_RETURN(const client::LoadRun run, run_row(f, *http, loads[i], f.prompts.seed + i, title));
    OrderedJson row;
    row["request_rate"] = std::isinf(f.request_rate) ? OrderedJson("inf") : OrderedJson(f.request_rate);
    row["max_concurrency"] = loads[i] > 0 ? OrderedJson(loads[i]) : OrderedJson(nullptr);
    row.update(measurement::serving_row(run));
    completed += row["completed"].get<int64_t>();
    if (f.details) row["details"] = details_of(run);
    rows.push_back(std::move(row));
  }
  report["rows"] = rows;
  const std::string text = report.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  if (!f.output.empty()) RETURN_IF_ERROR(write_file_atomically(f.output, text + "\n"));
  if (!f.plot.empty())
    RETURN_IF_ERROR(write_file_atomically(
        f.plot, measurement::serving_plot(
                    rows, fmt::format("{}: {} requests ({})", f.model, f.prompts.count, f.prompts.dataset))));
  if (f.json)
    fmt::print("{}\n", text);
  else
    fmt::print("{}", measurement::serving_table(rows));
  if (completed == 0) return error(Code::Invalid, "{}: no request was answered", f.base_url);
  return Status::ok();
}

}  // namespace

Command add_bench_serving(CLI::App& bench) {
  auto flags = std::make_shared<ServingFlags>();
  ServingFlags& f = *flags;
  Command c;
  c.app = bench.add_subcommand("serving", "Throughput and latencies of a server under load (any with OpenAI's API)");
  add_text(*c.app, "--base-url", f.base_url, "address of the server", "URL");
  add_choice(*c.app, "--endpoint", f.endpoint, {"completions", "chat", "generate"},
             "/v1/completions, /v1/chat/completions, or SGLang's /generate");
  add_text(*c.app, "--model", f.model, "name of the model (default: the first of /v1/models)", "NAME");
  add_text(*c.app, "--api-key", f.api_key, "sent as \"Authorization: Bearer KEY\"", "KEY");
  add_integer(*c.app, "--num-prompts", f.prompts.count, {1, 1 << 24}, "requests of each row");
  add_text(*c.app, "--request-rate", f.rate, "arrivals a second, as a Poisson process; inf: all at once", "R");
  add_integers(*c.app, "--max-concurrency", f.concurrency, {1, 1 << 20},
               "most requests in flight; a list gives a row for each: 1,8,32");
  add_choice(*c.app, "--dataset", f.prompts.dataset, {"random", "sharegpt-like", "gsm8k", "file"},
             "where prompts and lengths come from");
  add_text(*c.app, "--data-path", f.prompts.path, "JSON lines of gsm8k, or with \"prompt\" and \"max_tokens\"", "FILE");
  add_integer(*c.app, "--random-input-len", f.prompts.input_len, {1, 1 << 24}, "longest prompt in tokens");
  add_integer(*c.app, "--random-output-len", f.prompts.output_len, {1, 1 << 24},
              "longest answer in tokens (128); of gsm8k and file as well");
  add_real(*c.app, "--random-range-ratio", f.prompts.range_ratio, {0, 1},
           "shortest over longest length; 1: all are the longest");
  add_integer(*c.app, "--num-shots", f.prompts.shots, {0, 1000}, "solved questions before each of gsm8k");
  add_integer(*c.app, "--seed", f.seed, {0, int64_t{1} << 40}, "of prompts, lengths and arrivals");
  add_choice(*c.app, "--prompt-form", f.prompt_form, {"auto", "ids", "text"},
             "random prompts as token ids or as text; auto: ids where the server takes them");
  add_integer(*c.app, "--vocab-size", f.vocab_size, {16, 1 << 24},
              "bound of random token ids (default: what the server says, else 1000)");
  add_switch(*c.app, "--ignore-eos", f.ignore_eos, "answers go on to their full length");
  add_real(*c.app, "--temperature", f.temperature, {0, 2}, "of the requests");
  add_text(*c.app, "--extra-request-body", f.extra_body, "fields laid over the body of every request", "JSON");
  add_integer(*c.app, "--warmup-requests", f.warmups, {0, 1 << 20}, "sent before, not counted");
  add_real(*c.app, "--timeout", f.timeout_s, {0.1, 1e6}, "seconds without a byte after which a request failed");
  add_switch(*c.app, "--json", f.json, "one JSON object on standard output");
  add_text(*c.app, "--output", f.output, "write the same JSON to a file", "FILE.json");
  add_switch(*c.app, "--output-details", f.details, "times, lengths and texts of every request in the JSON");
  add_text(*c.app, "--plot", f.plot, "draw latencies and throughput of the rows", "FILE.svg");
  c.app->footer(
      "Names and definitions are those of vLLM's and SGLang's clients. TTFT: from sending a request to its first "
      "text;\n"
      "ITL: from one piece of text to the next; E2E: to its last piece; TPOT: (E2E - TTFT) / (tokens - 1). A request\n"
      "held back by --max-concurrency begins when it is sent. Tokens are counted by the server. Failed requests are\n"
      "told with their reasons and are in no other figure.");
  c.check = [flags] { return flags->check(); };
  c.run = [flags] { return run_serving(*flags); };
  return c;
}

}  // namespace reprise::apps
