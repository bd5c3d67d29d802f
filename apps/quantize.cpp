// `reprise quantize`: a float checkpoint to W8A8, with a report of what it costs.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "api/text_model.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "checkpoint/fit_to_tensors.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "evaluation/perplexity.h"
#include "evaluation/text_file.h"
#include "hub/companions.h"
#include "models/model.h"
#include "quantiser/checkpoint_quantiser.h"

namespace reprise::apps {

using namespace api;

namespace {

namespace fs = std::filesystem;

using quantiser::QuantFormat;

struct QuantizeFlags {
  ModelFlags model;
  std::string output, scheme = "dynamic", format = "compressed-tensors";
  std::string calibration_file, text_file;
  int64_t calibration_tokens = 16384;
  int64_t window = 512, max_windows = 0;
  std::optional<double> smooth;
  std::vector<std::string> ignore{"lm_head"}, dynamic{"down_proj"};
  bool json = false;

  Status check() const {
    RETURN_IF_ERROR(model.check());
    if (output.empty()) return invalid("--output FOLDER is needed");
    if (calibration_file.empty() && scheme == "static")
      return invalid("--scheme static needs --calibration-file FILE: a text to see the activations' ranges on");
    if (calibration_file.empty() && smooth.value_or(0) > 0)
      return invalid("--smooth needs --calibration-file FILE: a text to see the activations' ranges on");
    return Status::ok();
  }
  // Where activations were seen, their outliers move into the weights: half and half, as its authors propose.
  double smoothing() const { return smooth.value_or(calibration_file.empty() ? 0 : 0.5); }
};

struct Scores {
  std::optional<evaluation::Perplexity> before, after;
};

Result<evaluation::Perplexity> score(engine::Engine& engine, const TextModel& text, const QuantizeFlags& f,
                                     const std::string& content, const char* title) {
  ASSIGN_OR_RETURN(const auto tokens, text.encode(content));
  evaluation::PerplexityOptions options;
  options.window = std::min(f.window, engine.context_length());
  options.max_windows = f.max_windows;
  if (const auto bos = engine.config().bos_token_id) options.bos = static_cast<int32_t>(*bos);
  std::unique_ptr<Progress> bar;
  int64_t shown = 0;
  return evaluation::perplexity(engine, tokens, options, [&](int64_t now, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>(title, static_cast<uint64_t>(total));
    bar->advance(static_cast<uint64_t>(now - shown));
    shown = now;
  });
}

Result<quantiser::InputObservations> calibrate(const QuantizeFlags& f, const std::string& content) {
  ModelFlags flags = f.model;
  flags.graph.observe_linears = true;
  flags.graph.graph = "off";
  ASSIGN_OR_RETURN(auto engine, open_engine(flags));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(flags, "", *engine));
  ASSIGN_OR_RETURN(const auto tokens, text.encode(content));
  quantiser::ObserveOptions options;
  options.max_tokens = f.calibration_tokens;
  options.window = std::min({options.window, engine->context_length(), engine->max_step_tokens()});
  std::unique_ptr<Progress> bar;
  int64_t shown = 0;
  return quantiser::observe_inputs(*engine, tokens, options, [&](int64_t now, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("calibrating", static_cast<uint64_t>(total));
    bar->advance(static_cast<uint64_t>(now - shown));
    shown = now;
  });
}

bool has_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "tokenizer.json", ignored) || fs::exists(folder / "tiktoken.model", ignored);
}

// What hub/companions.h lists, of a model's folder and of the folders in it (`inside`, with its slash).
Status copy_companions(const fs::path& from, const fs::path& to, const std::string& inside = "") {
  std::error_code failed, ignored;
  fs::directory_iterator it(from / inside, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && it != fs::directory_iterator(); it.increment(failed)) {
    const std::string name = inside + it->path().filename().string();
    if (inside.empty() && it->is_directory(ignored)) {
      RETURN_IF_ERROR(copy_companions(from, to, name + "/"));
    } else if (hub::is_companion(name) && it->is_regular_file(ignored)) {
      std::error_code no_copy;
      fs::create_directories((to / name).parent_path(), ignored);
      fs::copy_file(*it, to / name, fs::copy_options::overwrite_existing, no_copy);
      if (no_copy) return invalid("{}: {}", (to / name).string(), no_copy.message());
    }
  }
  return failed ? invalid("{}: {}", (from / inside).string(), failed.message()) : Status::ok();
}

Status write_tokenizer(const QuantizeFlags& f, const checkpoint::GgufFile& file, const fs::path& to) {
  auto made = gguf_tokenizer_files(file);
  if (made.status().code() == Code::Unsupported || made.status().code() == Code::NotFound) {
    fmt::print(stderr, "notice: no tokenizer is written ({}); give --tokenizer-path {} with the new folder\n",
               made.status().message(), f.model.model_path);
    return Status::ok();
  }
  RETURN_IF_ERROR(made.status());
  for (const auto& [name, content] : *made) RETURN_IF_ERROR(write_file_atomically((to / name).string(), content));
  return Status::ok();
}

Status write_folder(const QuantizeFlags& f, const checkpoint::Checkpoint& source, const std::string& source_path,
                    Json config, DType dtype, const quantiser::QuantisedCheckpoint& q) {
  const fs::path to = f.output;
  std::error_code failed;
  fs::create_directories(to, failed);
  if (failed) return invalid("{}: {}", f.output, failed.message());
  std::vector<checkpoint::TensorToWrite> tensors;
  for (const auto& t : q.tensors) tensors.push_back({t.name, t.dtype, t.shape, t.bytes});
  RETURN_IF_ERROR(checkpoint::write_safetensors((to / "model.safetensors").string(), tensors, {{"format", "pt"}}));
  config["torch_dtype"] = dtype == DType::BF16 ? "bfloat16" : dtype == DType::F16 ? "float16" : "float32";
  config.erase("dtype");
  config.erase("gguf_rope_freqs");  // a word of our own for what GGUF files may hold
  if (!q.quantization_config.is_null()) config["quantization_config"] = q.quantization_config;
  RETURN_IF_ERROR(write_file_atomically((to / "config.json").string(), config.dump(2) + "\n"));
  // A description that an earlier run left here would contradict this one.
  fs::remove(to / "quant_model_description.json", failed);
  if (!q.description.is_null())
    RETURN_IF_ERROR(
        write_file_atomically((to / "quant_model_description.json").string(), q.description.dump(2) + "\n"));
  if (source.gguf()) return write_tokenizer(f, *source.gguf(), to);
  // A single file of weights may lie among those of other models.
  return fs::is_directory(source_path, failed) ? copy_companions(source_path, to) : Status::ok();
}

OrderedJson perplexity_json(const evaluation::Perplexity& p) {
  return {{"perplexity", p.perplexity},
          {"mean_nll", p.mean_nll},
          {"standard_error", p.standard_error},
          {"tokens", p.tokens}};
}

OrderedJson report_json(const QuantizeFlags& f, const quantiser::QuantisedCheckpoint& q, const Scores& scores) {
  OrderedJson j;
  j["model"] = f.model.model_path;
  j["output"] = f.output;
  j["scheme"] = f.scheme;
  j["format"] = f.format;
  j["smooth"] = f.smoothing();
  uint64_t bytes = 0;
  for (const auto& t : q.tensors) bytes += t.bytes.size();
  j["bytes"] = bytes;
  j["layers"] = OrderedJson::array();
  for (const auto& l : q.linears)
    j["layers"].push_back({{"weight", l.weight},
                           {"scheme", l.is_static ? "static" : "dynamic"},
                           {"weight_error", l.weight_error},
                           {"output_error", l.output_error ? OrderedJson(*l.output_error) : OrderedJson(nullptr)}});
  if (scores.before && scores.after)
    j["perplexity"] = {{"before", perplexity_json(*scores.before)},
                       {"after", perplexity_json(*scores.after)},
                       {"change", scores.after->perplexity / scores.before->perplexity - 1}};
  return j;
}

// The worst and the mean of each kind of layer; single layers are in the JSON.
void print_report(const quantiser::QuantisedCheckpoint& q, const Scores& scores) {
  struct Kind {
    int64_t count = 0;
    double weight = 0, output = 0, worst = 0;
    std::string worst_at;
    bool measured = false;
  };
  std::map<std::string, Kind> kinds;
  for (const auto& l : q.linears) {
    const std::string module = l.weight.substr(0, l.weight.rfind('.'));
    Kind& k = kinds[module.substr(module.rfind('.') + 1) + (l.is_static ? " static" : " dynamic")];
    ++k.count;
    k.weight += l.weight_error;
    const double e = l.output_error.value_or(l.weight_error);
    k.output += e;
    k.measured = k.measured || l.output_error;
    if (e >= k.worst) {
      k.worst = e;
      k.worst_at = l.weight;
    }
  }
  fmt::print("{:<20} {:>7} {:>13} {:>13} {:>9}  {}\n", "linears", "number", "weight error", "output error", "worst",
             "at");
  for (const auto& [name, k] : kinds) {
    const auto n = static_cast<double>(k.count);
    fmt::print("{:<20} {:>7} {:>12.3f}% {:>13} {:>8.3f}%  {}\n", name, k.count, 100 * k.weight / n,
               k.measured ? fmt::format("{:.3f}%", 100 * k.output / n) : "-", 100 * k.worst, k.worst_at);
  }
  if (scores.before && scores.after) {
    const double change = scores.after->perplexity / scores.before->perplexity - 1;
    fmt::print("perplexity {:.4f} before, {:.4f} after ({}), {} tokens\n", scores.before->perplexity,
               scores.after->perplexity,
               coloured(change <= 0.02 ? Colour::Green : Colour::Red, fmt::format("{:+.2f}%", 100 * change), stdout),
               scores.before->tokens);
  }
}

Status run_quantize(QuantizeFlags f) {
  f.model.quantization = "none";
  ASSIGN_OR_RETURN(const std::string path, service::model_on_disk(f.model.model_path, f.model.hub));
  std::error_code ignored;
  if (fs::exists(f.output, ignored) && fs::equivalent(path, f.output, ignored))
    return invalid("--output {} is the model itself", f.output);
  std::string calibration, content;
  if (!f.calibration_file.empty()) {
    ASSIGN_OR_RETURN(calibration, evaluation::read_evaluation_text(f.calibration_file));
  }
  if (!f.text_file.empty()) {
    ASSIGN_OR_RETURN(content, evaluation::read_evaluation_text(f.text_file));
  }
  ASSIGN_OR_RETURN(auto source, checkpoint::Checkpoint::open(path, models::families()));
  Result<checkpoint::ModelConfigFields> config = error(Code::Internal, "not read");
  config = source.gguf() ? checkpoint::read_model_config(*source.gguf(), f.model.overrides, models::families(true))
                         : checkpoint::read_model_config(path, f.model.overrides, models::families(true));
  RETURN_IF_ERROR(config.status());
  checkpoint::fit_to_tensors(*config, source);
  if (!source.aside().empty()) {
    fmt::print(stderr, "notice: {} tensors of the {} layers that predict further tokens are not written\n",
               source.aside().size(), config->nextn_layers);
    config->raw_json["num_nextn_predict_layers"] = 0;
    config->raw_json.erase("num_mtp_layers");
  }
  if (config->has_rope_freqs) return error(Code::Unsupported, "{}: rope_freqs.weight has no form in config.json", path);

  quantiser::QuantiseOptions options;
  options.format = f.format == "modelslim" ? QuantFormat::ModelSlim : QuantFormat::CompressedTensors;
  options.static_activations = f.scheme == "static";
  options.dynamic = f.dynamic;
  options.ignore = f.ignore;
  options.smooth = f.smoothing();
  options.dtype = config->dtype.value_or(DType::BF16);
  if (f.model.dtype != "auto") {
    ASSIGN_OR_RETURN(options.dtype, parse_dtype(f.model.dtype));
  }
  options.threads = static_cast<int>(f.model.threads > 0 ? f.model.threads : std::thread::hardware_concurrency());
  f.model.dtype = std::string(dtype_name(options.dtype));

  Scores scores;
  if (!content.empty()) {
    ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
    ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
    ASSIGN_OR_RETURN(scores.before, score(*engine, text, f, content, "perplexity before"));
  }
  quantiser::InputObservations seen;
  if (!calibration.empty()) {
    ASSIGN_OR_RETURN(seen, calibrate(f, calibration));
  }
  Result<quantiser::QuantisedCheckpoint> made = error(Code::Internal, "not made");
  {
    Progress bar("quantising", source.tensors().size());
    made =
        quantiser::quantise_checkpoint(source, seen, options, [&](const std::string& name) { bar.advance(1, name); });
  }
  RETURN_IF_ERROR(made.status());
  RETURN_IF_ERROR(write_folder(f, source, path, config->raw(), options.dtype, *made));
  if (!content.empty()) {
    ModelFlags flags = f.model;
    flags.model_path = f.output;
    flags.quantization = "auto";
    flags.overrides.clear();
    if (flags.tokenizer_path.empty() && !has_tokenizer(f.output)) flags.tokenizer_path = path;
    ASSIGN_OR_RETURN(auto engine, open_engine(flags));
    ASSIGN_OR_RETURN(const TextModel text, TextModel::open(flags, "", *engine));
    ASSIGN_OR_RETURN(scores.after, score(*engine, text, f, content, "perplexity after"));
  }
  const OrderedJson report = report_json(f, *made, scores);
  RETURN_IF_ERROR(
      write_file_atomically((fs::path(f.output) / "quantization_report.json").string(), report.dump(1) + "\n"));
  if (f.json) {
    fmt::print("{}\n", report.dump());
  } else {
    print_report(*made, scores);
    fmt::print("written to {}; try: reprise chat --model-path {}\n", f.output, f.output);
  }
  return Status::ok();
}

}  // namespace

Command add_quantize(CLI::App& program) {
  auto flags = std::make_shared<QuantizeFlags>();
  Command c;
  c.app = program.add_subcommand("quantize", "Write a float model as W8A8, with a report of what it costs");
  CLI::App& app = *c.app;
  app.option_defaults()->group("Quantisation");
  add_text(app, "--output", flags->output, "folder to write: config.json, model.safetensors, tokenizer", "FOLDER");
  add_choice(app, "--scheme", flags->scheme, {"dynamic", "static"},
             "activations: a scale for every token, or one scale and offset for each linear (dynamic)");
  add_choice(app, "--format", flags->format, {"compressed-tensors", "modelslim"}, "of the folder (compressed-tensors)");
  add_text(app, "--calibration-file", flags->calibration_file,
           "text, or .jsonl, on which activations are seen; for static, --smooth and output errors", "FILE");
  add_integer(app, "--calibration-tokens", flags->calibration_tokens, {1, 1 << 30}, "of it");
  add_real(app, "--smooth", flags->smooth, {0, 0.99},
           "SmoothQuant's exponent: moves outliers of activations into weights; 0: off (0.5 with a calibration file)");
  add_texts(app, "--ignore", flags->ignore, "linears whose name holds this stay float (lm_head)", "PART");
  add_texts(app, "--keep-dynamic", flags->dynamic,
            "with --scheme static: linears whose name holds this stay dynamic (down_proj); \"\": none", "PART");
  add_text(app, "--text-file", flags->text_file, "text, or .jsonl, for the change of perplexity", "FILE");
  add_integer(app, "--window", flags->window, {2, 1 << 24}, "tokens of a window of it");
  add_integer(app, "--max-windows", flags->max_windows, {0, 1 << 24}, "stop after so many; 0: the whole text");
  add_switch(app, "--json", flags->json, "one JSON object on standard output");
  flags->model.add_to(app);
  app.footer(
      "Reads a Hugging Face folder or a GGUF file of floats (block formats are unpacked first). Errors are relative,\n"
      "in the Frobenius norm: of the weight, and of the linear's output on rows seen in calibration. The whole report\n"
      "is written to FOLDER/quantization_report.json: {model, output, scheme, format, smooth, bytes, layers: "
      "[{weight,\n"
      "scheme, weight_error, output_error}], perplexity: {before, after, change}}.");
  c.check = [flags] { return flags->check(); };
  c.run = [flags] { return run_quantize(*flags); };
  return c;
}

}  // namespace reprise::apps
