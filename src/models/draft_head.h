// Heads that draft from the hidden states of another model: a checkpoint's own layers behind the last one (MTP), and
// trained layers beside it (EAGLE, EAGLE-3). And what that model, the source, keeps for them.
//
// The source writes rows of its hidden states into pages, beside its keys and values ("kept_rows"): the row of a token
// is there for as long as its keys are, whichever step or request computed it. The head's text is that of the source
// without its first token: its row i sees token i + 1 and the source's row i. It reads the source's pages by slot
// ("source_read"). Behind the rows that the source has computed a head goes on from its own: the row of its last token
// goes into the source's page where the source's own row of that token comes later ("source_write"). Stateless.
#pragma once

#include "models/decoder.h"

namespace reprise::models {

// The source: the cache, where TraceOptions::kept_rows asks for it.
void declare_kept_rows(const ModelConfig& config, const TraceOptions& trace, StepSpec& step);
// The source, in front of each layer and, with the rows that its head reads, behind the last one.
class RowKeeper {
 public:
  explicit RowKeeper(nn::StepInputs& in) : in_(in) {}
  bool keeps(int64_t layer) const;
  void see(Tensor rows, int64_t layer);
  void write() const;

 private:
  nn::StepInputs& in_;
  Tensor rows_ = {};
};

// The head: inputs by slot, the source's pages, and keys and values of its first `layers` layers alone. `apart`: rows
// that the head itself has left are other ones than the source's.
void declare_head(const TraceOptions& trace, int64_t layers, StepSpec& step, bool apart = false);
// The rows for those of this step: the source's, or those that the head has left.
Tensor source_rows(nn::StepInputs& in);
// Where they are apart: for each row `made` of the source's row, or `own`, what the head has left. Both are computed of
// either kind, and one is chosen: no device has to read zeros for what is not there.
Tensor rows_apart(nn::StepInputs& in, Tensor made, Tensor own);
void leave_rows(nn::StepInputs& in, Tensor rows);

// A layer of the family behind the checkpoint's last one, and the norms around it. The head reads the model's own
// embedding and logits' head, which the layer repeats.
struct PredictionNames {
  std::string_view of_embedding = "enorm", of_rows = "hnorm", join = "eh_proj", last = "shared_head.norm";
  // Where these are, with the layer as "layers.0" of it; empty: in the layer behind the checkpoint's last one.
  std::string_view scope = {};
  nn::Norm norm = nn::rms_norm;
};
ModelOutputs prediction_head(const ModelConfig& config, const LayerAttention& attention, const LayerMlp& mlp,
                             nn::StepInputs& in, const nn::ParamScope& root, const PredictionNames& names = {});
void declare_prediction(const ModelConfig& config, const TraceOptions& trace, StepSpec& step);
inline int64_t width_of_hidden(const checkpoint::ModelConfigFields& f) { return f.hidden_size; }

// The families that EAGLE's checkpoints name (EngineOptions::families). Not in list.h: some of those files have the
// name of a model.
namespace eagle {
extern const ModelSpec kEagle, kEagle3;
}  // namespace eagle

}  // namespace reprise::models
