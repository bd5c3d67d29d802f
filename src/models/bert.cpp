// BERT, RoBERTa and XLM-RoBERTa, which is RoBERTa with more words: every row sees its whole text, positions are
// learned, and norms stand behind the branches.
#include <cmath>

#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "models/list.h"
#include "models/pooling.h"
#include "nn/encoder.h"
#include "nn/layers.h"

namespace reprise::models::bert {
namespace {

using checkpoint::ModelConfigFields;
using checkpoint::PoolKind;

Tensor norm(Tensor x, const ModelConfig& config, const nn::ParamScope& p) {
  return nn::layer_norm_biased(x, p / "LayerNorm", config.fields.rms_norm_eps);
}

// RoBERTa numbers positions from the one behind its padding token; `unused` rows of the table stand before them.
Tensor embeddings(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& p, int64_t unused) {
  const auto& f = config.fields;
  const Dim width(f.hidden_size);
  const int64_t positions = f.max_position_embeddings;
  const auto kinds = static_cast<int64_t>(f.number("type_vocab_size"));
  const Tensor word = nn::embedding((p / "word_embeddings").param("weight", {Dim(f.vocab_size), width}), in.tokens);
  const Tensor kind =
      nn::embedding((p / "token_type_embeddings").param("weight", {Dim(kinds), width}), in.more("token_types"));
  const nn::ParamScope table = p / "position_embeddings";
  const Tensor place =
      nn::embedding(unused > 0 ? table.rows("weight", unused, positions, unused + positions, {Dim(positions), width})
                               : table.param("weight", {Dim(positions), width}),
                    in.positions);
  return norm(nn::add(nn::add(word, kind), place), config, p);
}

Tensor layer(const ModelConfig& config, Tensor x, nn::StepInputs& in, const nn::ParamScope& p) {
  using nn::Shard;
  const auto& f = config.fields;
  const int64_t width = f.num_attention_heads * f.head_dim;
  const nn::ParamScope self = p / "attention" / "self", behind = p / "attention" / "output";
  const auto heads = [&](std::string_view name) {
    return nn::heads(nn::linear(x, self / name, width, true, Shard::Column), f.head_dim);
  };
  const Tensor q = heads("query"), k = heads("key"), v = heads("value");
  const double scale = 1.0 / std::sqrt(static_cast<double>(f.head_dim));
  const Tensor seen = nn::flatten(nn::segment_attention(q, k, v, in.cu_seqlens, scale));
  x = norm(nn::add(nn::linear(seen, behind / "dense", f.hidden_size, true, Shard::Row), x), config, behind);
  const Tensor h =
      nn::activate(nn::linear(x, p / "intermediate" / "dense", f.intermediate_size, true, Shard::Column), f.hidden_act);
  const nn::ParamScope out = p / "output";
  return norm(nn::add(nn::linear(h, out / "dense", f.hidden_size, true, Shard::Row), x), config, out);
}

// The score of a pair: a dense layer under tanh of its first row, then one number.
ModelOutputs score(const ModelConfig& config, Tensor x, nn::StepInputs& in, const nn::ParamScope& dense,
                   const nn::ParamScope& last) {
  const Tensor first = nn::index_select(x, in.more("first_rows"));
  const Tensor h = nn::softcap(nn::linear(first, dense, config.fields.hidden_size, true, nn::Shard::None), 1);
  return {.pooled = nn::sigmoid(nn::as_f32(nn::linear(h, last, 1, true, nn::Shard::None)))};
}

ModelOutputs encoder(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root, bool roberta) {
  Tensor x = embeddings(config, in, root / "embeddings",
                        roberta ? static_cast<int64_t>(config.fields.number("unused_positions")) : 0);
  for (int64_t l = 0; l < config.fields.num_hidden_layers; ++l)
    x = layer(config, x, in, root / "encoder" / "layer" / l);
  if (config.pooling.kind != PoolKind::Labels)
    return pooled_outputs(config, {x, [](Tensor rows) { return rows; }}, in, root);
  const nn::ParamScope head = root / "classifier";
  return roberta ? score(config, x, in, head / "dense", head / "out_proj")
                 : score(config, x, in, root / "pooler" / "dense", head);
}

ModelOutputs bert(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return encoder(config, in, root, false);
}
ModelOutputs roberta(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return encoder(config, in, root, true);
}

void declare(const ModelConfig&, const TraceOptions& trace, StepSpec& step) { step = encoder_step(trace); }

constexpr std::string_view kFields[] = {"type_vocab_size",
                                        "layer_norm_eps",
                                        "position_embedding_type",
                                        "is_decoder",
                                        "is_causal",
                                        "gguf_positions_cut",
                                        "hidden_act",
                                        "classifier_dropout",
                                        "gradient_checkpointing",
                                        "summary_type",
                                        "classifier_activation"};

Status read(const checkpoint::FieldReader& in, ModelConfigFields& out) {
  int64_t kinds = 0;
  RETURN_IF_ERROR(in.integer("type_vocab_size", 1, 1 << 16, 2, kinds));
  out.numbers["type_vocab_size"] = static_cast<double>(kinds);
  std::string positions;
  RETURN_IF_ERROR(in.choice("position_embedding_type", {"absolute"}, "absolute", positions));
  bool causal = false;
  RETURN_IF_ERROR(in.boolean("is_decoder", false, causal));
  return causal ? in.wrong("is_decoder", true, "null, false") : Status::ok();
}

Status read_roberta(const checkpoint::FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(read(in, out));
  bool cut = false;
  RETURN_IF_ERROR(in.boolean("gguf_positions_cut", false, cut));
  if (cut) {
    out.numbers["unused_positions"] = 0;
    return Status::ok();
  }
  int64_t pad = 0;
  RETURN_IF_ERROR(in.integer("pad_token_id", 0, out.vocab_size - 1, 1, pad));
  if (pad + 1 >= out.max_position_embeddings)
    return in.wrong("pad_token_id", pad, fmt::format("integers from 0 to {}", out.max_position_embeddings - 2));
  out.numbers["unused_positions"] = static_cast<double>(pad + 1);
  out.max_position_embeddings -= pad + 1;
  return Status::ok();
}

// A model that scores has one label.
Status one_label(const checkpoint::FieldReader& in) {
  const Json* names = in.find("id2label");
  int64_t labels = 2;
  if (names && names->is_object()) labels = static_cast<int64_t>(names->size());
  RETURN_IF_ERROR(in.integer("num_labels", 1, 1 << 20, labels, labels));
  return labels == 1 ? Status::ok() : in.wrong("id2label", names ? *names : Json(labels), "one label: a reranker's");
}

Status read_scores(const checkpoint::FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(one_label(in));
  return read(in, out);
}
Status read_roberta_scores(const checkpoint::FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(one_label(in));
  return read_roberta(in, out);
}

// GGUF files are all of one architecture. A unigram model tells XLM-RoBERTa, and a classifier a reranker; all others
// are BERT's, as converters cut the unused rows off the table of positions, which was all that is different.
using checkpoint::GgufFields;
Result<bool> has_classifier(const GgufFields& in) { return in.has("cls.output.weight"); }
Result<bool> has_unigrams(const GgufFields& in) {
  ASSIGN_OR_RETURN(const auto model, in.file().string("tokenizer.ggml.model"));
  return model == "t5" && !in.has("cls.output.weight");
}

Status add(GgufFields& in) {
  const std::string_view kTable = "token_types.weight", kKey = "tokenizer.ggml.token_type_count";
  const checkpoint::StoredTensor* table = in.file().find(kTable);
  if (!table || table->shape.size() != 2)
    return invalid("{}: tensor \"{}\" is missing or no matrix", in.file().source(), kTable);
  ASSIGN_OR_RETURN(const auto kinds, in.file().integer(kKey));
  if (kinds && *kinds != table->shape[0])
    return invalid("{}: metadata \"{}\" is {}, but \"{}\" has {} rows", in.file().source(), kKey, *kinds, kTable,
                   table->shape[0]);
  in.out()["type_vocab_size"] = table->shape[0];
  in.out()["gguf_positions_cut"] = true;
  for (const char* always : {"attention_bias", "mlp_bias"}) in.out().erase(always);
  return Status::ok();
}

// A head of BERT's own has its dense layer in the pooler, which converters leave out.
Status add_scores(GgufFields& in) {
  const checkpoint::StoredTensor* last = in.file().find("cls.output.weight");
  if (!in.has("cls.weight"))
    return error(Code::Unsupported,
                 "{}: tensor \"cls.output.weight\" without \"cls.weight\": a classifier whose dense "
                 "layer is missing gives other scores than it was trained for",
                 in.file().source());
  in.out()["num_labels"] = last->shape.size() == 2 ? last->shape[0] : 1;
  return add(in);
}

constexpr checkpoint::GgufTensorName kTensors[] = {{"token_embd.", "embeddings.word_embeddings."},
                                                   {"token_types.", "embeddings.token_type_embeddings."},
                                                   {"position_embd.", "embeddings.position_embeddings."},
                                                   {"token_embd_norm.", "embeddings.LayerNorm."},
                                                   {"attn_q.", "attention.self.query."},
                                                   {"attn_k.", "attention.self.key."},
                                                   {"attn_v.", "attention.self.value."},
                                                   {"attn_output.", "attention.output.dense."},
                                                   {"attn_output_norm.", "attention.output.LayerNorm."},
                                                   {"ffn_up.", "intermediate.dense."},
                                                   {"ffn_down.", "output.dense."},
                                                   {"layer_output_norm.", "output.LayerNorm."},
                                                   {"cls.output.", "classifier.out_proj."},
                                                   {"cls.", "classifier.dense."}};

constexpr checkpoint::GgufFamily gguf_of(Result<bool> (*holds)(const GgufFields&), Status (*add)(GgufFields&)) {
  return {.name = "bert",
          .eps = "attention.layer_norm_epsilon",
          .holds = holds,
          .add = add,
          .tensors = kTensors,
          .layers = "encoder.layer."};
}

// Encoders inside models with a head, and norms of old files.
using checkpoint::NameRule;
constexpr NameRule kNames[] = {{NameRule::At::Start, "bert.", ""},
                               {NameRule::At::Start, "roberta.", ""},
                               {NameRule::At::End, ".LayerNorm.gamma", ".LayerNorm.weight"},
                               {NameRule::At::End, ".LayerNorm.beta", ".LayerNorm.bias"}};

constexpr std::string_view kUnread[] = {"pooler.", "embeddings.position_ids", "cls.", "lm_head."};
constexpr std::string_view kUnreadScores[] = {"embeddings.position_ids"};

constexpr checkpoint::SizeDefaults kSizes{
    .vocab = 30522, .hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12, .positions = 512, .eps = 1e-12};
constexpr checkpoint::SizeDefaults kRobertaSizes{
    .vocab = 50265, .hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12, .positions = 512, .eps = 1e-12};
constexpr checkpoint::SizeDefaults kXlmRobertaSizes{
    .vocab = 30522, .hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12, .positions = 512, .eps = 1e-12};

}  // namespace

const ModelSpec kBert{.family = {.architecture = "BertModel",
                                 .model_type = "bert",
                                 .sizes = kSizes,
                                 .fields = kFields,
                                 .read = read,
                                 .gguf = gguf_of(nullptr, add),
                                 .names = kNames,
                                 .eps_key = "layer_norm_eps",
                                 .activation_key = "hidden_act",
                                 .activation = "gelu"},
                      .forward = bert,
                      .encoder = true,
                      .pooling = PoolKind::Mean,
                      .unread = kUnread,
                      .declare = declare};
const ModelSpec kBertScores{.family = {.architecture = "BertForSequenceClassification",
                                       .model_type = "bert",
                                       .sizes = kSizes,
                                       .fields = kFields,
                                       .read = read_scores,
                                       .names = kNames,
                                       .eps_key = "layer_norm_eps",
                                       .activation_key = "hidden_act",
                                       .activation = "gelu"},
                            .forward = bert,
                            .encoder = true,
                            .pooling = PoolKind::Labels,
                            .unread = kUnreadScores,
                            .declare = declare};
const ModelSpec kRoberta{.family = {.architecture = "RobertaModel",
                                    .model_type = "roberta",
                                    .sizes = kRobertaSizes,
                                    .fields = kFields,
                                    .read = read_roberta,
                                    .names = kNames,
                                    .eps_key = "layer_norm_eps",
                                    .activation_key = "hidden_act",
                                    .activation = "gelu"},
                         .forward = roberta,
                         .encoder = true,
                         .pooling = PoolKind::Mean,
                         .unread = kUnread,
                         .declare = declare};
const ModelSpec kRobertaScores{.family = {.architecture = "RobertaForSequenceClassification",
                                          .model_type = "roberta",
                                          .sizes = kRobertaSizes,
                                          .fields = kFields,
                                          .read = read_roberta_scores,
                                          .names = kNames,
                                          .eps_key = "layer_norm_eps",
                                          .activation_key = "hidden_act",
                                          .activation = "gelu"},
                               .forward = roberta,
                               .encoder = true,
                               .pooling = PoolKind::Labels,
                               .unread = kUnreadScores,
                               .declare = declare};
const ModelSpec kXlmRoberta{.family = {.architecture = "XLMRobertaModel",
                                       .model_type = "xlm-roberta",
                                       .sizes = kXlmRobertaSizes,
                                       .fields = kFields,
                                       .read = read_roberta,
                                       .gguf = gguf_of(has_unigrams, add),
                                       .names = kNames,
                                       .eps_key = "layer_norm_eps",
                                       .activation_key = "hidden_act",
                                       .activation = "gelu"},
                            .forward = roberta,
                            .encoder = true,
                            .pooling = PoolKind::Mean,
                            .unread = kUnread,
                            .declare = declare};
const ModelSpec kXlmRobertaScores{.family = {.architecture = "XLMRobertaForSequenceClassification",
                                             .model_type = "xlm-roberta",
                                             .sizes = kXlmRobertaSizes,
                                             .fields = kFields,
                                             .read = read_roberta_scores,
                                             .gguf = gguf_of(has_classifier, add_scores),
                                             .names = kNames,
                                             .eps_key = "layer_norm_eps",
                                             .activation_key = "hidden_act",
                                             .activation = "gelu"},
                                  .forward = roberta,
                                  .encoder = true,
                                  .pooling = PoolKind::Labels,
                                  .unread = kUnreadScores,
                                  .declare = declare};

}  // namespace reprise::models::bert
