// `reprise quantize`: a float checkpoint to W8A8, with a report of what it costs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "evaluation/text_file.h"
#include "quantiser/model_quantiser.h"
#include "settings/setting.h"

namespace reprise::apps {
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

// The worst and the mean of each kind of layer; single layers are in the JSON.
void print_report(const quantiser::QuantisedModel& made) {
  struct Kind {
    int64_t count = 0;
    double weight = 0, output = 0, worst = 0;
    std::string worst_at;
    bool measured = false;
  };
  std::map<std::string, Kind> kinds;
  for (const auto& l : made.checkpoint.linears) {
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
  if (made.before && made.after) {
    const double change = made.after->perplexity / made.before->perplexity - 1;
    fmt::print("perplexity {:.4f} before, {:.4f} after ({}), {} tokens\n", made.before->perplexity,
               made.after->perplexity,
               coloured(change <= 0.02 ? Colour::Green : Colour::Red, fmt::format("{:+.2f}%", 100 * change), stdout),
               made.before->tokens);
  }
}

Status run_quantize(const QuantizeFlags& f) {
  quantiser::ModelQuantisation job;
  ASSIGN_OR_RETURN(job.path, service::model_on_disk(f.model.model_path, f.model.hub));
  std::error_code ignored;
  if (fs::exists(f.output, ignored) && fs::equivalent(job.path, f.output, ignored))
    return invalid("--output {} is the model itself", f.output);
  if (!f.calibration_file.empty()) {
    ASSIGN_OR_RETURN(job.calibration, evaluation::read_evaluation_text(f.calibration_file));
  }
  if (!f.text_file.empty()) {
    ASSIGN_OR_RETURN(job.text, evaluation::read_evaluation_text(f.text_file));
  }
  job.model = service::engine_settings(f.model);
  job.notices = f.model.launcher.notices();
  job.output = f.output;
  job.options.format = f.format == "modelslim" ? QuantFormat::ModelSlim : QuantFormat::CompressedTensors;
  job.options.static_activations = f.scheme == "static";
  job.options.dynamic = f.dynamic;
  job.options.ignore = f.ignore;
  job.options.smooth = f.smoothing();
  job.calibration_tokens = f.calibration_tokens;
  job.window = f.window;
  job.max_windows = f.max_windows;
  job.notice = [](const std::string& text) { fmt::print(stderr, "notice: {}\n", settings::as_flags(text)); };
  ASSIGN_OR_RETURN(const quantiser::QuantisedModel made, quantiser::quantise_model(std::move(job)));
  if (f.json) {
    fmt::print("{}\n", made.report.dump());
  } else {
    print_report(made);
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
