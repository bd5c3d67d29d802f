// GGUF metadata in config.json's words.
#include <algorithm>
#include <cmath>

#include "checkpoint/config.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/gguf_tokenizer.h"

namespace reprise::checkpoint {
namespace {

// Copies metadata keys "<arch>.<key>" into the JSON.
class Translator {
 public:
  Translator(const GgufFile& file, const Families& families, const Family& family, const std::string& arch, Json& out)
      : file_(file), families_(families), of_(family), family_(family.gguf), fields_(file, arch, out), out_(out) {}

  Status run() {
    for (const auto& [key, name] :
         {std::pair{"embedding_length", "hidden_size"}, {"context_length", "max_position_embeddings"}})
      RETURN_IF_ERROR(integer(key, name, true));
    RETURN_IF_ERROR(layers());
    // These may be lists with one number for each layer.
    ASSIGN_OR_RETURN(const auto of_experts, file_.integer(key("expert_feed_forward_length")));
    RETURN_IF_ERROR(per_layer("feed_forward_length", "intermediate_size", !of_experts));
    RETURN_IF_ERROR(per_layer("attention.head_count", "num_attention_heads", true));
    RETURN_IF_ERROR(per_layer("attention.head_count_kv", "num_key_value_heads", false));
    if (!out_.contains("num_key_value_heads")) out_["num_key_value_heads"] = out_["num_attention_heads"];
    ASSIGN_OR_RETURN(const auto eps, file_.number(key(family_.eps)));
    if (!eps) return missing(family_.eps);
    out_[std::string(of_.eps_key)] = *eps;
    if (!family_.latent) RETURN_IF_ERROR(head_dim());
    RETURN_IF_ERROR(rope());
    if (family_.latent) RETURN_IF_ERROR(add_latent(fields_));
    RETURN_IF_ERROR(experts());
    // Which tensors there are says the rest.
    out_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
    out_["attention_bias"] = file_.find("blk.0.attn_output.bias") != nullptr ||
                             (!family_.qkv_bias && file_.find("blk.0.attn_q.bias") != nullptr);
    out_["mlp_bias"] = file_.find("blk.0.ffn_down.bias") != nullptr;
    ASSIGN_OR_RETURN(const auto causal, file_.boolean(key("attention.causal")));
    if (causal && !*causal) out_["is_causal"] = false;
    if (family_.add) RETURN_IF_ERROR(family_.add(fields_));
    RETURN_IF_ERROR(vocabulary());
    ASSIGN_OR_RETURN(const auto window, file_.integer(key("attention.sliding_window")));
    const bool slides = window.value_or(0) > 0 && family_.windows;
    out_["sliding_window"] = slides ? Json(*window) : Json(nullptr);
    out_["use_sliding_window"] = slides;
    if (of_.activation_key.empty()) out_["hidden_act"] = "silu";
    return Status::ok();
  }

 private:
  std::string key(std::string_view name) const { return fields_.key(name); }
  Status missing(std::string_view name) const { return fields_.missing(name); }
  Status integer(std::string_view name, const char* to, bool required) { return fields_.copy(name, to, required); }

  // block_count counts layers that predict further tokens, unless the file was written without them.
  Status layers() {
    RETURN_IF_ERROR(integer("block_count", "num_hidden_layers", true));
    ASSIGN_OR_RETURN(const auto nextn, file_.integer(key("nextn_predict_layers")));
    const int64_t blocks = out_["num_hidden_layers"].get<int64_t>();
    if (!nextn || *nextn == 0) return Status::ok();
    if (*nextn < 0 || *nextn >= blocks)
      return invalid("{}: metadata \"{}\" is {}; allowed: 0 to {}", file_.source(), key("nextn_predict_layers"), *nextn,
                     blocks - 1);
    out_["num_nextn_predict_layers"] = *nextn;
    const auto block = [&](std::string_view leaf) {
      return file_.find(fmt::format("blk.{}.{}", blocks - 1, leaf)) != nullptr;
    };
    const bool plain = block("attn_norm.weight") && !block("nextn.eh_proj.weight");
    if (!plain) out_["num_hidden_layers"] = blocks - *nextn;
    return Status::ok();
  }

  Status per_layer(std::string_view name, const char* to, bool required) {
    const GgufValue* v = file_.find_value(key(name));
    if (!v || v->type != GgufValueType::Array) return integer(name, to, required);
    if (v->count == 0 || !GgufValue::is_integer_type(v->element))
      return invalid("{}: metadata \"{}\" is not a list of integers", file_.source(), key(name));
    // Layers that keep a state have none of some things.
    ASSIGN_OR_RETURN(const auto states, file_.integer(key("ssm.state_size")));
    ASSIGN_OR_RETURN(int64_t first, v->as_int(0));
    for (uint64_t i = 1; i < v->count; ++i) {
      ASSIGN_OR_RETURN(const int64_t other, v->as_int(i));
      if (states && first == 0) first = other;
      if (other != first && !(states && other == 0))
        return error(Code::Unsupported, "{}: metadata \"{}\" differs between layers ({} and {}), which cannot be read",
                     file_.source(), key(name), first, other);
    }
    out_[to] = first;
    return Status::ok();
  }

  Status head_dim() {
    ASSIGN_OR_RETURN(const auto length, file_.integer(key("attention.key_length")));
    ASSIGN_OR_RETURN(const auto value_length, file_.integer(key("attention.value_length")));
    ASSIGN_OR_RETURN(const auto rotary, file_.integer(key("rope.dimension_count")));
    const int64_t hidden = out_["hidden_size"].get<int64_t>(), heads = out_["num_attention_heads"].get<int64_t>();
    if (heads <= 0)
      return invalid("{}: metadata \"{}\" is {}; allowed: 1 to 65536", file_.source(), key("attention.head_count"),
                     heads);
    const int64_t dim = length.value_or(hidden / heads);
    if (dim <= 0)
      return invalid("{}: metadata \"{}\" is {}; allowed: 1 to 8192", file_.source(), key("attention.key_length"), dim);
    if (value_length && *value_length != dim)
      return error(Code::Unsupported, "{}: keys of {} and values of {} elements; only equal ones can be read",
                   file_.source(), dim, *value_length);
    if (length || hidden % heads == 0) out_["head_dim"] = dim;
    if (rotary && (*rotary != dim || of_.partial_rotation)) {
      if (*rotary <= 0 || *rotary > dim)
        return invalid("{}: metadata \"{}\" is {}; allowed: 1 to {}", file_.source(), key("rope.dimension_count"),
                       *rotary, dim);
      out_["gguf_partial_rotary_factor"] = static_cast<double>(*rotary) / static_cast<double>(dim);
    }
    return Status::ok();
  }

  Status rope() {
    ASSIGN_OR_RETURN(const auto theta, file_.number(key("rope.freq_base")));
    if (theta) out_["rope_theta"] = *theta;
    out_["gguf_rope_freqs"] = file_.find("rope_freqs.weight") != nullptr;
    ASSIGN_OR_RETURN(const auto type, file_.string(key("rope.scaling.type")));
    ASSIGN_OR_RETURN(const auto newer, file_.number(key("rope.scaling.factor")));
    ASSIGN_OR_RETURN(const auto older, file_.number(key("rope.scale_linear")));
    const double factor = newer ? *newer : older ? *older : 0.0;  // 0 = not given, as in the files
    // A factor without a type means linear; a type of "none" means that the factor does not count.
    const std::string kind = type.value_or(factor != 0.0 && factor != 1.0 ? "linear" : "none");
    if (kind == "none") return Status::ok();
    Json scaling = {{"rope_type", kind}, {"factor", factor != 0.0 ? factor : 1.0}};
    if (kind == "yarn") {
      ASSIGN_OR_RETURN(const auto original, file_.integer(key("rope.scaling.original_context_length")));
      if (original) scaling["original_max_position_embeddings"] = *original;
      for (const auto& [name, to] :
           {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"}, {"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
        ASSIGN_OR_RETURN(const auto v, file_.number(key(name)));
        if (v) scaling[to] = *v;
      }
      ASSIGN_OR_RETURN(const auto ext, file_.number(key("rope.scaling.yarn_ext_factor")));
      if (ext && *ext >= 0 && *ext != 1.0)
        return error(Code::Unsupported, "{}: metadata \"{}\" is {}; allowed: 1", file_.source(),
                     key("rope.scaling.yarn_ext_factor"), *ext);
      // GGUF's factor multiplies what YaRN derives from the length; Hugging Face's replaces it.
      ASSIGN_OR_RETURN(auto attention, file_.number(key("rope.scaling.yarn_attn_factor")));
      if (!attention) {
        ASSIGN_OR_RETURN(attention, file_.number(key("rope.scaling.attn_factor")));
      }
      if (attention && *attention > 0 && *attention != 1.0)
        scaling["attention_factor"] = *attention * (0.1 * std::log(std::max(1.0, factor)) + 1.0);
    }
    out_["rope_scaling"] = std::move(scaling);
    return Status::ok();
  }

  Status experts() {
    ASSIGN_OR_RETURN(const auto count, fields_.get("expert_count"));
    ASSIGN_OR_RETURN(const auto states, fields_.get("ssm.time_step_rank"));
    if (count.value_or(0) <= 0)  // a file of a family with state-space layers may have none
      return family_.experts.empty() || states ? Status::ok() : missing("expert_count");
    if (family_.experts.empty()) {
      std::vector<std::string_view> allowed;
      for (const Family* f : families_.list)
        for (const std::string_view name : {f->gguf.name, f->gguf.other_name})
          if (!f->gguf.experts.empty() && !name.empty() && (allowed.empty() || allowed.back() != name))
            allowed.push_back(name);
      return error(Code::Unsupported,
                   "{}: a mixture of {} experts of architecture \"{}\" cannot be read from GGUF; allowed: {}",
                   file_.source(), *count, family_.name, fmt::join(allowed, ", "));
    }
    out_[std::string(family_.experts)] = *count;
    return fields_.copy("expert_used_count", "num_experts_per_tok");
  }

  Status vocabulary() {
    // The embedding's rows are the truth; a list of tokens may be shorter than a padded embedding.
    const StoredTensor* embedding = file_.find("token_embd.weight");
    const GgufValue* tokens = file_.find_value("tokenizer.ggml.tokens");
    if (embedding && embedding->shape.size() == 2) {
      out_["vocab_size"] = embedding->shape[0];
    } else {
      RETURN_IF_ERROR(integer("vocab_size", "vocab_size", false));
      if (!out_.contains("vocab_size") && tokens) out_["vocab_size"] = tokens->count;
    }
    if (!out_.contains("vocab_size"))
      return invalid("{}: no token_embd.weight, \"{}\" or tokenizer.ggml.tokens to tell the size of the vocabulary",
                     file_.source(), key("vocab_size"));
    if (!tokens) return Status::ok();
    ASSIGN_OR_RETURN(const GgufTokenizer tokenizer, read_gguf_tokenizer(file_));
    if (tokenizer.bos_id) out_["bos_token_id"] = *tokenizer.bos_id;
    if (tokenizer.pad_id) out_["pad_token_id"] = *tokenizer.pad_id;
    std::vector<int64_t> ends;
    for (const auto& id : {tokenizer.eos_id, tokenizer.eot_id, tokenizer.eom_id})
      if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
    if (!ends.empty()) out_["eos_token_id"] = ends;
    return Status::ok();
  }

  const GgufFile& file_;
  const Families& families_;
  const Family& of_;
  const GgufFamily& family_;
  GgufFields fields_;
  Json& out_;
};

}  // namespace

Result<Json> config_json_from_gguf(const GgufFile& file, const Families& families) {
  ASSIGN_OR_RETURN(const auto arch, file.string("general.architecture"));
  if (!arch) return invalid("{}: metadata \"general.architecture\" is missing", file.source());
  ASSIGN_OR_RETURN(const Family* family, families.of_gguf(file));
  if (!family && *arch == "clip")
    return invalid(
        "{}: general.architecture is \"clip\", which is a vision tower alone; give its text model as "
        "`model_path`, and this file as `mmproj`",
        file.source());
  if (!family) {
    std::vector<std::string_view> known;
    for (const Family* f : families.list)
      for (const std::string_view name : {f->gguf.name, f->gguf.other_name})
        if (!name.empty() && std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    return error(Code::Unsupported, "{}: general.architecture is \"{}\"{}; known: {}", file.source(), *arch,
                 families.nearest_to_gguf(*arch), fmt::join(known, ", "));
  }
  Json out = Json::object();
  out["architectures"] = Json::array({family->architecture});
  out["model_type"] = family->model_type;
  RETURN_IF_ERROR(Translator(file, families, *family, *arch, out).run());
  return out;
}

}  // namespace reprise::checkpoint
