#include "quantiser/model_quantiser.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "api/text_model.h"
#include "base/file.h"
#include "base/progress.h"
#include "checkpoint/fit_to_tensors.h"
#include "evaluation/shown_progress.h"
#include "models/model.h"
#include "quantiser/quantised_folder.h"

namespace reprise::quantiser {
namespace {

Result<evaluation::Perplexity> score(const api::ModelSettings& model, const ModelQuantisation& job, const char* title) {
  ASSIGN_OR_RETURN(auto engine, api::open_engine(model, job.notices));
  ASSIGN_OR_RETURN(const api::TextModel text, api::TextModel::open(model, "", *engine));
  ASSIGN_OR_RETURN(const auto tokens, text.encode(job.text));
  evaluation::PerplexityOptions options;
  options.window = std::min(job.window, engine->context_length());
  options.max_windows = job.max_windows;
  if (const auto bos = engine->config().bos_token_id) options.bos = static_cast<int32_t>(*bos);
  return evaluation::perplexity(*engine, tokens, options, evaluation::shown_progress(title));
}

Result<InputObservations> calibrate(const ModelQuantisation& job) {
  api::ModelSettings model = job.model;
  model.graph.observe_linears = true;
  model.graph.graph = "off";
  ASSIGN_OR_RETURN(auto engine, api::open_engine(model, job.notices));
  ASSIGN_OR_RETURN(const api::TextModel text, api::TextModel::open(model, "", *engine));
  ASSIGN_OR_RETURN(const auto tokens, text.encode(job.calibration));
  ObserveOptions options;
  options.max_tokens = job.calibration_tokens;
  options.window = std::min({options.window, engine->context_length(), engine->max_step_tokens()});
  return observe_inputs(*engine, tokens, options, evaluation::shown_progress("calibrating"));
}

Result<checkpoint::ModelConfigFields> config_of(const ModelQuantisation& job, checkpoint::Checkpoint& source) {
  const auto families = models::families(true);
  const std::vector<std::string>& overrides = job.model.overrides;
  auto read = source.gguf() ? checkpoint::read_model_config(*source.gguf(), overrides, families)
                            : checkpoint::read_model_config(job.path, overrides, families);
  RETURN_IF_ERROR(read.status());
  checkpoint::ModelConfigFields config = std::move(*read);
  checkpoint::fit_to_tensors(config, source);
  if (!source.aside().empty()) {
    job.notice(fmt::format("{} tensors of the {} layers that predict further tokens are not written",
                           source.aside().size(), config.nextn_layers));
    config.raw_json["num_nextn_predict_layers"] = 0;
    config.raw_json.erase("num_mtp_layers");
  }
  if (config.has_rope_freqs)
    return error(Code::Unsupported, "{}: rope_freqs.weight has no form in config.json", job.path);
  return config;
}

OrderedJson perplexity_json(const evaluation::Perplexity& p) {
  return {{"perplexity", p.perplexity},
          {"mean_nll", p.mean_nll},
          {"standard_error", p.standard_error},
          {"tokens", p.tokens}};
}

OrderedJson report_of(const ModelQuantisation& job, const QuantisedModel& m) {
  OrderedJson j;
  j["model"] = job.model.model_path;
  j["output"] = job.output;
  j["scheme"] = job.options.static_activations ? "static" : "dynamic";
  j["format"] = job.options.format == QuantFormat::ModelSlim ? "modelslim" : "compressed-tensors";
  j["smooth"] = job.options.smooth;
  uint64_t bytes = 0;
  for (const auto& t : m.checkpoint.tensors) bytes += t.bytes.size();
  j["bytes"] = bytes;
  j["layers"] = OrderedJson::array();
  for (const QuantisedLinear& l : m.checkpoint.linears)
    j["layers"].push_back({{"weight", l.weight},
                           {"scheme", l.is_static ? "static" : "dynamic"},
                           {"weight_error", l.weight_error},
                           {"output_error", l.output_error ? OrderedJson(*l.output_error) : OrderedJson(nullptr)}});
  if (m.before && m.after)
    j["perplexity"] = {{"before", perplexity_json(*m.before)},
                       {"after", perplexity_json(*m.after)},
                       {"change", m.after->perplexity / m.before->perplexity - 1}};
  return j;
}

}  // namespace

Result<QuantisedModel> quantise_model(ModelQuantisation job) {
  job.model.quantization = "none";
  ASSIGN_OR_RETURN(auto source, checkpoint::Checkpoint::open(job.path, models::families()));
  ASSIGN_OR_RETURN(const checkpoint::ModelConfigFields config, config_of(job, source));
  QuantiseOptions& options = job.options;
  options.dtype = config.dtype.value_or(DType::BF16);
  if (job.model.dtype != "auto") {
    ASSIGN_OR_RETURN(options.dtype, parse_dtype(job.model.dtype));
  }
  options.threads = static_cast<int>(job.model.threads > 0 ? job.model.threads : std::thread::hardware_concurrency());
  job.model.dtype = std::string(dtype_name(options.dtype));

  QuantisedModel out;
  if (!job.text.empty()) {
    ASSIGN_OR_RETURN(out.before, score(job.model, job, "perplexity before"));
  }
  InputObservations seen;
  if (!job.calibration.empty()) {
    ASSIGN_OR_RETURN(seen, calibrate(job));
  }
  {
    Progress bar("quantising", source.tensors().size());
    ASSIGN_OR_RETURN(out.checkpoint, quantise_checkpoint(source, seen, options,
                                                         [&](const std::string& name) { bar.advance(1, name); }));
  }
  RETURN_IF_ERROR(write_quantised_folder({source, job.path, job.model.model_path, config.raw(), options.dtype},
                                         out.checkpoint, job.output, job.notice));
  if (!job.text.empty()) {
    api::ModelSettings written = job.model;
    written.model_path = job.output;
    written.quantization = "auto";
    written.overrides.clear();
    if (written.tokenizer_path.empty() && !has_tokenizer(job.output)) written.tokenizer_path = job.path;
    ASSIGN_OR_RETURN(out.after, score(written, job, "perplexity after"));
  }
  out.report = report_of(job, out);
  RETURN_IF_ERROR(write_file_atomically(job.output + "/quantization_report.json", out.report.dump(1) + "\n"));
  return out;
}

}  // namespace reprise::quantiser
