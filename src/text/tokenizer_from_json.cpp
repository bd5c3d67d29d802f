// Tokenizer::from_json: tokenizer.json of HF tokenizers, and what tokenizer_config.json adds to it.
#include <algorithm>
#include <limits>

#include "text/tokenizer_json.h"
#include "text/tokenizer_parts.h"
#include "text/tokenizer_tables.h"

namespace reprise::text {
namespace {

bool is_id(const Json& json) {
  if (json.is_number_unsigned()) return json.get<uint64_t>() <= static_cast<uint64_t>(Vocabulary::kMaxId);
  return json.is_number_integer() && json.get<int64_t>() >= 0 && json.get<int64_t>() <= Vocabulary::kMaxId;
}

Status build_vocabulary(const TokenizerTables& tables, const std::string& place, Vocabulary* vocabulary) {
  vocabulary->reserve(tables.token_count(), tables.token_bytes() / 2);
  for (size_t i = 0; i < tables.token_count(); ++i) {
    const Status added = vocabulary->add(tables.token(i), tables.id(i));
    if (!added) return added.at(place + ".vocab");
  }
  if (vocabulary->distinct() != tables.token_count()) return invalid("{}.vocab: a token occurs twice", place);
  return Status::ok();
}

Status build_merges(const TokenizerTables& tables, const std::string& place, const Vocabulary& vocabulary,
                    BpeModel* bpe) {
  bpe->reserve(tables.merge_count());
  for (size_t i = 0; i < tables.merge_count(); ++i) {
    const Status added = bpe->add_merge(vocabulary, tables.left(i), tables.right(i), static_cast<uint32_t>(i));
    if (!added) return added.at(fmt::format("{}.merges[{}]", place, i));
  }
  bpe->finish(vocabulary);
  return Status::ok();
}

Status read_word_pieces(const JsonPlace& place, const TokenizerTables* read, TokenizerParts* parts) {
  RETURN_IF_ERROR(
      place.expect_object({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}));
  if (!place.has("vocab") || !place["vocab"].json().is_object())
    return place.error("vocab is missing or not an object of ids by token");
  TokenizerTables own;
  if (read == nullptr) {
    ASSIGN_OR_RETURN(own, TokenizerTables::from_json(place));
    read = &own;
  }
  RETURN_IF_ERROR(build_vocabulary(*read, place.path(), &parts->vocabulary));
  WordPieceOptions options;
  ASSIGN_OR_RETURN(options.prefix, place.string_or("continuing_subword_prefix", "##"));
  constexpr int64_t kMostCharacters = 4096;
  if (place.has("max_input_chars_per_word")) {
    ASSIGN_OR_RETURN(options.max_characters, place.integer("max_input_chars_per_word", 1, kMostCharacters));
  }
  ASSIGN_OR_RETURN(const std::string unk, place.string_or("unk_token", "[UNK]"));
  options.unk_id = parts->unk = parts->vocabulary.find(unk);
  if (options.unk_id < 0) return place.error("unk_token \"{}\" is not in the vocabulary", unk);
  parts->model.emplace<WordPieceModel>(std::move(options), parts->vocabulary);
  return Status::ok();
}

// "vocab": [["<s>", 0.0], ...], by id.
Status read_unigram(const JsonPlace& place, TokenizerParts* parts) {
  RETURN_IF_ERROR(place.expect_object({"type", "unk_id", "vocab", "byte_fallback"}));
  ASSIGN_OR_RETURN(const bool byte_fallback, place.boolean_or("byte_fallback", false));
  if (!place.has("vocab") || !place["vocab"].json().is_array() || place["vocab"].json().empty())
    return place.error("vocab is missing or not an array of tokens and scores");
  const JsonPlace list = place["vocab"];
  std::vector<double> scores;
  for (const Json& entry : list.json()) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      return list.error("entry {} must be a token and its score", scores.size());
    const auto id = static_cast<int64_t>(scores.size());
    const Status added = parts->vocabulary.add(entry[0].get_ref<const std::string&>(), id);
    if (!added) return list.at(added);
    scores.push_back(entry[1].get<double>());
  }
  if (parts->vocabulary.distinct() != scores.size()) return list.error("a token occurs twice");
  ASSIGN_OR_RETURN(const int64_t unk, place.integer("unk_id", 0, static_cast<int64_t>(scores.size()) - 1));
  parts->unk = static_cast<int32_t>(unk);
  auto model = UnigramModel::create(parts->vocabulary, std::move(scores), parts->unk, byte_fallback);
  if (!model) return place.at(model.status());
  parts->model = std::move(*model);
  return Status::ok();
}

Status read_model(const JsonPlace& place, const TokenizerTables* read, TokenizerParts* parts) {
  if (place.has("type") && place["type"].json() == "WordPiece") return read_word_pieces(place, read, parts);
  if (place.has("type") && place["type"].json() == "Unigram") return read_unigram(place, parts);
  RETURN_IF_ERROR(
      place.expect_object({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                           "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  // Old files leave the type out; merges tell.
  if (place.has("type") || !place.has("merges")) {
    ASSIGN_OR_RETURN(const std::string type, place.type({"BPE", "WordPiece", "Unigram"}));
  }
  if (place.has("dropout") && (!place["dropout"].json().is_number() || place["dropout"].json().get<double>() != 0))
    return place.error("dropout must be null or 0: tokenizing must not be random");
  BpeOptions options;
  ASSIGN_OR_RETURN(options.unk_token, place.string_or("unk_token", ""));
  ASSIGN_OR_RETURN(options.subword_prefix, place.string_or("continuing_subword_prefix", ""));
  ASSIGN_OR_RETURN(options.word_suffix, place.string_or("end_of_word_suffix", ""));
  ASSIGN_OR_RETURN(options.fuse_unk, place.boolean_or("fuse_unk", false));
  ASSIGN_OR_RETURN(options.byte_fallback, place.boolean_or("byte_fallback", false));
  ASSIGN_OR_RETURN(options.ignore_merges, place.boolean_or("ignore_merges", false));
  if (!place.has("vocab") || !place["vocab"].json().is_object())
    return place.error("vocab is missing or not an object of ids by token");
  if (!place.has("merges") || !place["merges"].json().is_array())
    return place.error("merges is missing or not an array");
  TokenizerTables own;
  if (read == nullptr) {
    ASSIGN_OR_RETURN(own, TokenizerTables::from_json(place));
    read = &own;
  }
  RETURN_IF_ERROR(build_vocabulary(*read, place.path(), &parts->vocabulary));
  parts->unk = parts->vocabulary.find(options.unk_token);
  BpeModel bpe(std::move(options));
  RETURN_IF_ERROR(build_merges(*read, place.path(), parts->vocabulary, &bpe));
  parts->model = std::move(bpe);
  return Status::ok();
}

// The flags that tokenizer.json and tokenizer_config.json share.
Result<AddedToken> read_added_token(const JsonPlace& place) {
  AddedToken token;
  ASSIGN_OR_RETURN(token.content, place.string("content"));
  ASSIGN_OR_RETURN(token.single_word, place.boolean_or("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, place.boolean_or("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, place.boolean_or("rstrip", false));
  ASSIGN_OR_RETURN(token.special, place.boolean_or("special", false));
  ASSIGN_OR_RETURN(token.normalized, place.boolean_or("normalized", !token.special));
  return token;
}

Status read_added_tokens(const JsonPlace& root, TokenizerBuilder* builder) {
  if (!root.has("added_tokens")) return Status::ok();
  ASSIGN_OR_RETURN(const auto places, root.array("added_tokens"));
  for (const JsonPlace& place : places) {
    RETURN_IF_ERROR(place.expect_object({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    ASSIGN_OR_RETURN(AddedToken token, read_added_token(place));
    ASSIGN_OR_RETURN(const int64_t id, place.integer("id", 0, Vocabulary::kMaxId));
    token.id = static_cast<int32_t>(id);
    const Status added = builder->add_token(std::move(token));
    if (!added) return place.at(added);
  }
  return Status::ok();
}

// One item of a template: the ids that it stands for, or a text.
struct TemplateItem {
  std::optional<size_t> text;  // 0: the first one
  std::vector<int32_t> ids;
  int64_t kind = 0;
};

Result<TemplateItem> read_template_item(const JsonPlace& item, const JsonPlace& post, const TokenizerParts& parts) {
  RETURN_IF_ERROR(item.expect_object({"SpecialToken", "Sequence"}));
  if (item.json().size() != 1) return item.error("must have one key, SpecialToken or Sequence");
  TemplateItem out;
  const bool text = item.has("Sequence");
  if (!text && !item.has("SpecialToken")) return item.error("SpecialToken is null");
  const JsonPlace place = item[text ? "Sequence" : "SpecialToken"];
  if (place.has("type_id")) {
    ASSIGN_OR_RETURN(out.kind, place.integer("type_id", 0, 1));
  }
  if (text) {
    ASSIGN_OR_RETURN(out.text, place.choice("id", {"A", "B"}));
    return out;
  }
  ASSIGN_OR_RETURN(const std::string name, place.string("id"));
  if (!post.has("special_tokens") || !post["special_tokens"].has(name))
    return item.error("\"{}\" is not among special_tokens", name);
  const JsonPlace definition = post["special_tokens"][name];
  ASSIGN_OR_RETURN(const auto ids, definition.array("ids"));
  for (const JsonPlace& id : ids) {
    if (!is_id(id.json()) || !parts.token(id.json().get<int64_t>())) return id.error("must be the id of a token");
    out.ids.push_back(id.json().get<int32_t>());
  }
  return out;
}

// Both texts once, in their order; the second kind, where there is any, goes on to the end.
Status read_pair_template(const JsonPlace& post, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const auto items, post.array("pair"));
  TokenizerParts::Pair pair;
  size_t texts = 0;
  const auto kind_changes = [&](const JsonPlace& item) {
    if (texts != 1) return item.error("type_id must become 1 between the two texts or with the second one");
    pair.kinds = true;
    pair.second_kind = pair.between.size();
    return Status::ok();
  };
  for (const JsonPlace& place : items) {
    ASSIGN_OR_RETURN(const TemplateItem item, read_template_item(place, post, *parts));
    if (item.kind == 1 && !pair.kinds) RETURN_IF_ERROR(kind_changes(place));
    if (item.kind == 0 && pair.kinds) return place.error("type_id must stay 1 once it is");
    if (item.text) {
      if (*item.text != texts) return place.error("the texts must occur once each, A before B");
      ++texts;
      continue;
    }
    std::vector<int32_t>& to = texts == 0 ? pair.before : texts == 1 ? pair.between : pair.after;
    to.insert(to.end(), item.ids.begin(), item.ids.end());
  }
  if (texts != 2) return post.error("pair does not contain both texts");
  parts->pair = std::move(pair);
  return Status::ok();
}

Status read_template(const JsonPlace& place, TokenizerParts* parts) {
  RETURN_IF_ERROR(place.expect_object({"type", "single", "pair", "special_tokens"}));
  ASSIGN_OR_RETURN(const auto items, place.array("single"));
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  bool seen_text = false;
  for (const JsonPlace& at : items) {
    ASSIGN_OR_RETURN(const TemplateItem item, read_template_item(at, place, *parts));
    if (item.text) {
      if (*item.text != 0 || seen_text) return at.error("the text must occur once");
      seen_text = true;
      continue;
    }
    auto& to = seen_text ? after : before;
    to.insert(to.end(), item.ids.begin(), item.ids.end());
  }
  if (!seen_text) return place.error("single does not contain the text");
  parts->before.insert(parts->before.begin(), before.begin(), before.end());
  parts->after.insert(parts->after.end(), after.begin(), after.end());
  // Most models never see a pair: what is wrong with it is told to those who ask for one.
  if (place.has("pair")) parts->pair_problem = read_pair_template(place, parts);
  return Status::ok();
}

// ["[SEP]", 102]
Result<int32_t> read_named_id(const JsonPlace& place, std::string_view key, const TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const auto both, place.array(key));
  if (both.size() != 2 || !both[0].json().is_string() || !is_id(both[1].json()) ||
      parts.find(both[0].json().get<std::string>()) != both[1].json().get<int32_t>())
    return place.error("{} must be a token and its id", key);
  return both[1].json().get<int32_t>();
}

// The older words for templates that every model of the family has.
Status read_family_template(const JsonPlace& place, bool bert, TokenizerParts* parts) {
  RETURN_IF_ERROR(place.expect_object({"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
  ASSIGN_OR_RETURN(const int32_t sep, read_named_id(place, "sep", *parts));
  ASSIGN_OR_RETURN(const int32_t cls, read_named_id(place, "cls", *parts));
  parts->before.insert(parts->before.begin(), cls);
  parts->after.push_back(sep);
  TokenizerParts::Pair pair{{cls}, {sep}, {sep}, 1, bert};
  if (!bert) pair.between.push_back(sep);
  parts->pair = std::move(pair);
  return Status::ok();
}

Status read_post_processor(const JsonPlace& place, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const std::string type,
                   place.type({"Sequence", "TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing"}));
  if (type == "ByteLevel")  // moves offsets only
    return place.expect_object({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (type == "TemplateProcessing") return read_template(place, parts);
  if (type != "Sequence") return read_family_template(place, type == "BertProcessing", parts);
  RETURN_IF_ERROR(place.expect_object({"type", "processors"}));
  ASSIGN_OR_RETURN(const auto processors, place.array("processors"));
  for (const JsonPlace& p : processors) RETURN_IF_ERROR(read_post_processor(p, parts));
  return Status::ok();
}

// "bos_token" and the like: a string, or an object with "content".
Status read_named_token(const JsonPlace& config, std::string_view key, const TokenizerParts& parts, int32_t* id) {
  if (!config.has(key)) return Status::ok();
  const JsonPlace place = config[key];
  std::string content;
  if (place.json().is_string()) {
    content = place.json().get<std::string>();
  } else if (place.json().is_object()) {
    ASSIGN_OR_RETURN(content, place.string("content"));
  } else {
    return place.error("must be a string or an object with \"content\"");
  }
  if (content.empty()) return Status::ok();
  *id = parts.find(content);
  if (*id < 0) return place.error("\"{}\" is not a token of tokenizer.json", content);
  return Status::ok();
}

// Tokens that only the config lists.
Status read_config_tokens(const JsonPlace& config, TokenizerBuilder* builder) {
  if (!config.has("added_tokens_decoder")) return Status::ok();
  const JsonPlace table = config["added_tokens_decoder"];
  if (!table.json().is_object()) return table.error("must be an object of tokens by id");
  for (auto it = table.json().begin(); it != table.json().end(); ++it) {
    const JsonPlace place(it.value(), fmt::format("{}.{}", table.path(), it.key()));
    const std::string& key = it.key();
    if (key.empty() || key.size() > 7 ||
        !std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return table.error("\"{}\" must be an id between 0 and {}", key, Vocabulary::kMaxId);
    ASSIGN_OR_RETURN(AddedToken token, read_added_token(place));
    token.id = std::stoi(key);
    const Status added = builder->add_token(std::move(token));
    if (!added) return place.at(added);
  }
  return Status::ok();
}

// `tables` when they were read already.
Result<Tokenizer> build(const Json& tokenizer, const TokenizerTables* tables, const Json* config) {
  const JsonPlace root(tokenizer, "tokenizer.json: ");
  RETURN_IF_ERROR(JsonPlace(tokenizer, "tokenizer.json")
                      .expect_object({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                      "post_processor", "decoder", "model"}));
  if (!root.has("model")) return invalid("tokenizer.json: model is missing");
  TokenizerBuilder builder;
  TokenizerParts& parts = builder.parts();
  if (root.has("normalizer")) {
    ASSIGN_OR_RETURN(parts.normalizer, Normalizer::from_json(root["normalizer"]));
  }
  if (root.has("pre_tokenizer")) {
    ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::from_json(root["pre_tokenizer"]));
  }
  if (root.has("decoder")) {
    ASSIGN_OR_RETURN(parts.decoder, Decoder::from_json(root["decoder"]));
  } else {
    parts.decoder.add_spaces_between();
  }
  RETURN_IF_ERROR(read_model(root["model"], tables, &parts));
  RETURN_IF_ERROR(read_added_tokens(root, &builder));
  if (root.has("post_processor")) RETURN_IF_ERROR(read_post_processor(root["post_processor"], &parts));
  if (parts.before.size() == 1) parts.bos = parts.before[0];
  if (parts.after.size() == 1) parts.eos = parts.after[0];
  if (config != nullptr) RETURN_IF_ERROR(read_tokenizer_config(*config, &builder));
  return builder.build();
}

}  // namespace

Status read_tokenizer_config(const Json& json, TokenizerBuilder* builder) {
  const JsonPlace config(json, "tokenizer_config.json");
  if (!config.json().is_object()) return config.error("must be an object");
  RETURN_IF_ERROR(read_config_tokens(config, builder));
  TokenizerParts& parts = builder->parts();
  RETURN_IF_ERROR(read_named_token(config, "bos_token", parts, &parts.bos));
  RETURN_IF_ERROR(read_named_token(config, "eos_token", parts, &parts.eos));
  RETURN_IF_ERROR(read_named_token(config, "pad_token", parts, &parts.pad));

  // For other classes than those below it is a wish that their files need not fulfil.
  ASSIGN_OR_RETURN(const bool asks, config.boolean_or("add_eos_token", false));
  parts.asks_for_end = asks && parts.eos >= 0;

  // These classes replace the file's post-processor by their own.
  ASSIGN_OR_RETURN(std::string name, config.string_or("tokenizer_class", ""));
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  constexpr std::string_view kAddByConfig[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                               "CohereTokenizer"};
  if (std::find(std::begin(kAddByConfig), std::end(kAddByConfig), name) == std::end(kAddByConfig)) return Status::ok();
  ASSIGN_OR_RETURN(const bool add_bos, config.boolean_or("add_bos_token", true));
  ASSIGN_OR_RETURN(const bool add_eos, config.boolean_or("add_eos_token", false));
  if (add_bos && parts.bos < 0) return config.error("add_bos_token is true, but there is no bos_token");
  if (add_eos && parts.eos < 0) return config.error("add_eos_token is true, but there is no eos_token");
  parts.before.assign(add_bos ? 1 : 0, parts.bos);
  parts.after.assign(add_eos ? 1 : 0, parts.eos);
  return Status::ok();
}

Result<Tokenizer> Tokenizer::from_json(const Json& tokenizer, const Json* config) {
  return build(tokenizer, nullptr, config);
}

Result<Tokenizer> Tokenizer::from_json_text(std::string_view tokenizer, const Json* config) {
  Json rest;
  ASSIGN_OR_RETURN(const TokenizerTables tables, TokenizerTables::from_text(tokenizer, "tokenizer.json", &rest));
  return build(rest, &tables, config);
}

}  // namespace reprise::text
