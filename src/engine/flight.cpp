#include "engine/flight.h"

#include <algorithm>

#include "compile/compiled_model.h"

namespace reprise::engine {
namespace {

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

int64_t Flight::result_row(const Sequence* sequence) const {
  int64_t row = 0;
  for (const StepItem& item : items) {
    row += item.logits;
    if (item.sequence == sequence) return item.logits > 0 && (item.certain || item.drafts.empty()) ? row - 1 : -1;
  }
  return -1;
}

void Flight::resolve_tokens() const {
  if (output == StepOutput::Logits || output == StepOutput::Pooled) return;
  const auto tokens = answers[Tokens].as<const int32_t>();
  int64_t row = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    row += item.logits;
    if (item.logits > 0) item.sequence->resolve(ends[i], tokens[static_cast<size_t>(row - 1)]);
  }
}

Status Flight::ask(const CompiledModel& program, Device& device, Stream& stream) {
  for (int i = 0; i < kNames; ++i) {
    Answer& answer = answers[static_cast<size_t>(i)];
    answer.view = {};
    const std::string_view name = wanted(static_cast<Name>(i));
    if (name.empty()) continue;
    ASSIGN_OR_RETURN(answer.view, program.output(name));
    if (i == Tokens) next_tokens = answer.view.data;
    const size_t bytes = static_cast<size_t>(answer.view.elements()) * size_of(answer.view.dtype);
    ASSIGN_OR_RETURN(answer.view.data, answer.copy.ask(device, stream, answer.view.data, bytes));
  }
  return Status::ok();
}

Status Flight::accept() const {
  if (output == StepOutput::Logits) return Status::ok();
  if (output == StepOutput::Pooled)
    return all_finite(answers[Pooled].view)
               ? Status::ok()
               : error(Code::Internal, "a pooled row is not finite; something broke in the model");
  // Where logits are not seen, what they come from is: NaN upstream must not become a token.
  if (!all_finite(answers[Finite].view))
    return error(Code::Internal, "a hidden state is not a finite number; something broke in the model");
  resolve_tokens();
  return Status::ok();
}

Flight* Flights::find(Ticket ticket) {
  if (ticket == 0) return nullptr;
  Flight& f = all_[(ticket - 1) % all_.size()];
  return f.ticket == ticket ? &f : nullptr;
}

}  // namespace reprise::engine
