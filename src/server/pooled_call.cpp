#include "server/pooled_call.h"

#include <cmath>

#include <algorithm>
#include <functional>

#include "sched/embedder.h"
#include "server/fields.h"
#include "server/ids.h"
#include "server/ollama_reader.h"
#include "text/model_input.h"

namespace reprise::server {
namespace {

using checkpoint::PoolKind;

constexpr size_t kMostTexts = 2048, kMostRankFields = 16;

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double product = 0, first = 0, second = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    first += static_cast<double>(a[i]) * a[i];
    second += static_cast<double>(b[i]) * b[i];
  }
  const double lengths = std::sqrt(first) * std::sqrt(second);
  return lengths > 0 ? product / lengths : 0;
}

bool of_ollama(PooledForm form) { return form == PooledForm::OllamaEmbed || form == PooledForm::OllamaEmbeddings; }
bool of_pairs(PooledForm form) { return form == PooledForm::Rerank || form == PooledForm::Score; }

// The fields of each form.
bool knows(PooledForm form, std::string_view name) {
  constexpr std::string_view kAll[] = {"model", "user", "priority", "timeout"};
  constexpr std::string_view kVectors[] = {"input",    "encoding_format",        "dimensions", "prompt_name",
                                           "truncate", "truncate_prompt_tokens", "input_type", "add_special_tokens"};
  constexpr std::string_view kOllama[] = {"prompt", "options", "keep_alive"};
  constexpr std::string_view kRerank[] = {"query",    "documents",   "top_n",       "return_documents",
                                          "instruct", "instruction", "rank_fields", "max_tokens_per_doc"};
  constexpr std::string_view kScore[] = {"text_1", "text_2", "queries",  "documents",  "data_1",
                                         "data_2", "items",  "instruct", "instruction"};
  const auto in = [&](const auto& list) { return std::find(std::begin(list), std::end(list), name) != std::end(list); };
  if (in(kAll)) return true;
  if (form == PooledForm::Rerank) return in(kRerank);
  if (form == PooledForm::Score) return in(kScore);
  return in(kVectors) || (of_ollama(form) && in(kOllama));
}

class Reader {
 public:
  Reader(const Json& body, PooledForm form, const ServedModel& model, const CallLimits& limits)
      : body_(body), model_(model), limits_(limits), f_(body) {
    call_.form = form;
  }

  ParsedPooledCall read() {
    if (auto wrong = refuse_model()) return *wrong;
    read_common();
    if (!f_.error()) of_pairs(call_.form) ? read_scores() : read_vectors();
    if (!f_.error() && call_.tokens() > limits_.token_budget)
      f_.fail(of_pairs(call_.form) ? "documents" : "input",
              fmt::format("{} tokens in all are asked for; at most {} fit into one request", call_.tokens(),
                          limits_.token_budget));
    if (f_.error()) return *f_.error();
    return std::move(call_);
  }

 private:
  std::optional<ApiError> refuse_model() const {
    if (model_.pooled_size == 0)
      return ApiError{400,
                      fmt::format("\"{}\" generates text; it was not trained to give {}", model_.name,
                                  of_pairs(call_.form) ? "scores of documents" : "embeddings"),
                      "model"};
    if (of_pairs(call_.form) || model_.pooling.gives_vectors()) return std::nullopt;
    return ApiError{400,
                    fmt::format("\"{}\" gives scores of pairs of texts, and no embeddings; use /v1/rerank or /v1/score",
                                model_.name),
                    "model"};
  }

  void read_common() {
    call_.id = make_id(call_.form == PooledForm::Rerank  ? "rerank-"
                       : call_.form == PooledForm::Score ? "score-"
                                                         : "embd-");
    const auto name = f_.maybe_text("model");
    call_.model_name = name.value_or(model_.name);
    if (of_ollama(call_.form) && !f_.error() && !names_served_model(call_.model_name, model_))
      f_.take(ApiError{
          404, fmt::format("the model \"{}\" is not served here; there is \"{}\"", call_.model_name, model_.name),
          "model", "model_not_found"});
    call_.priority = f_.integer("priority", limits_.default_priority, INT32_MIN, INT32_MAX);
    call_.timeout_s = f_.maybe_number("timeout", kShortestTimeout, kLongestTimeout);
    f_.text("user", "");
    if (!limits_.strict_fields || !body_.is_object()) return;
    for (const auto& [field, value] : body_.items())
      if (!knows(call_.form, field)) f_.fail(field, "the field is unknown here");
  }

  void add(text::EncodedPair&& pair) {
    call_.second_kinds.push_back(pair.second_kind < pair.ids.size() ? static_cast<int64_t>(pair.second_kind)
                                                                    : INT64_MAX);
    call_.texts.push_back(std::move(pair.ids));
  }

  bool want_tokenizer(std::string_view field) {
    if (model_.tokenizer) return true;
    f_.fail(field, "this model has no tokenizer; token ids are expected");
    return false;
  }

  void add_text(const std::string& field, const std::string& text, int64_t most, bool truncate) {
    if (f_.error() || !want_tokenizer(field)) return;
    auto ids = text::encode_text(*model_.tokenizer, text, most, truncate, model_.pooling.kind == PoolKind::Last);
    if (!ids) return f_.fail(field, ids.status().message());
    if (static_cast<int64_t>(ids->ids.size()) > most)
      return f_.fail(field, fmt::format("the text has {} tokens, and the model's context {} (truncate_prompt_tokens -1 "
                                        "leaves out what is too much)",
                                        ids->ids.size(), most));
    add(std::move(*ids));
  }

  void add_ids(const std::string& field, const Json& list, int64_t most, bool truncate) {
    std::vector<int32_t> ids;
    for (const Json& id : list) {
      if (!id.is_number_integer() || id < 0 || id >= model_.vocab_size)
        return f_.fail(field, fmt::format("token ids from 0 to {} are expected", model_.vocab_size - 1));
      ids.push_back(id.get<int32_t>());
    }
    if (ids.empty()) return f_.fail(field, "a list of token ids must not be empty");
    if (truncate && static_cast<int64_t>(ids.size()) > most) ids.resize(static_cast<size_t>(most));
    if (static_cast<int64_t>(ids.size()) > most)
      return f_.fail(field, fmt::format("{} token ids, and the model's context is {}", ids.size(), most));
    const size_t size = ids.size();
    add({std::move(ids), size});
  }

  void read_vectors() {
    const bool ollama = of_ollama(call_.form);
    const std::string format = f_.text("encoding_format", "float");
    if (format != "float" && format != "base64") f_.fail("encoding_format", "\"float\" or \"base64\" is expected");
    call_.base64 = format == "base64" && !ollama;
    const auto dimensions = f_.maybe_integer("dimensions", 1, 1 << 20);
    call_.dimensions = dimensions.value_or(0);
    if (const Status allowed = sched::check_dimensions(model_.pooling, model_.pooled_size, call_.dimensions);
        !allowed.is_ok())
      f_.fail("dimensions", allowed.message());
    const auto prompt = checkpoint::prompt_of(model_.pooling, f_.maybe_text("prompt_name"));
    if (!prompt) f_.fail("prompt_name", prompt.status().message());
    const auto most = f_.maybe_integer("truncate_prompt_tokens", -1, model_.context_length);
    const bool truncate = f_.flag("truncate", ollama) || most.has_value();
    if (f_.error()) return;
    const int64_t bound = most.value_or(-1) > 0 ? *most : model_.context_length;
    const char* name = call_.form == PooledForm::OllamaEmbeddings ? "prompt" : "input";
    const Json* input = f_.find(name);
    if (!input) return f_.fail(name, "it is required");
    const auto wrong = [&] {
      f_.fail(name,
              fmt::format("a text, a list of texts, a list of token ids, or a list of those is expected, of at most {}",
                          kMostTexts));
    };
    if (input->is_string()) return add_text(name, *prompt + input->get<std::string>(), bound, truncate);
    if (!input->is_array() || input->empty()) return wrong();
    if ((*input)[0].is_number()) return add_ids(name, *input, bound, truncate);
    if (input->size() > kMostTexts) return wrong();
    for (size_t i = 0; i < input->size() && !f_.error(); ++i) {
      const Json& one = (*input)[i];
      const std::string field = fmt::format("{}[{}]", name, i);
      if (one.is_string())
        add_text(field, *prompt + one.get<std::string>(), bound, truncate);
      else if (one.is_array())
        add_ids(field, one, bound, truncate);
      else
        return wrong();
    }
  }

  // The texts of an object that count, one below the other; empty where it has none of them.
  std::string joined(const Json& object) const {
    std::string out;
    for (const std::string& field : rank_fields_) {
      const auto it = object.find(field);
      if (it == object.end() || !it->is_string()) continue;
      out += (out.empty() ? "" : "\n") + it->get_ref<const std::string&>();
    }
    return out;
  }

  // A text, an object with texts that count, or a list of them; none may be empty.
  std::vector<std::string> texts_of(std::initializer_list<const char*> names) {
    const char* name = *names.begin();
    const Json* given = nullptr;
    for (const char* n : names)
      if (!given && (given = f_.find(n))) name = n;
    std::vector<std::string> out;
    if (!given) {
      f_.fail(name, "it is required");
      return out;
    }
    const auto add_one = [&](const Json& one, const std::string& field) {
      std::string text = one.is_string() ? one.get<std::string>() : one.is_object() ? joined(one) : "";
      if (text.empty())
        return f_.fail(field, fmt::format("a text that is not empty, or an object with one as \"{}\", is expected",
                                          fmt::join(rank_fields_, "\" or \"")));
      out.push_back(std::move(text));
    };
    if (!given->is_array()) {
      add_one(*given, name);
      return out;
    }
    if (given->empty() || given->size() > kMostTexts)
      f_.fail(name, fmt::format("a list of 1 to {} texts is expected", kMostTexts));
    for (size_t i = 0; i < given->size() && !f_.error(); ++i) add_one((*given)[i], fmt::format("{}[{}]", name, i));
    return out;
  }

  // The most tokens that a text with this document at its end may have: the model's context, and less where the
  // document alone has more than `most_of_document_`.
  int64_t bound_of(const std::string& document, const std::function<Result<text::EncodedPair>(int64_t)>& encode) {
    const int64_t context = model_.context_length;
    if (!most_of_document_ || f_.error()) return context;
    const auto alone = model_.tokenizer->encode(document, {.add_special_tokens = false});
    const auto whole = encode(INT64_MAX);
    if (!alone || !whole) return context;  // said where it is encoded
    const int64_t over = static_cast<int64_t>(alone->size()) - *most_of_document_;
    return over > 0 ? std::min(context, static_cast<int64_t>(whole->ids.size()) - over) : context;
  }

  // A vector for every text, compared pair by pair.
  void compare(const std::vector<std::string>& first, const std::vector<std::string>& second) {
    for (const std::string& text : first) add_text("query", text, model_.context_length, true);
    for (const std::string& text : second) {
      if (!want_tokenizer("documents")) return;
      const bool at_end = model_.pooling.kind == PoolKind::Last;
      add_text(
          "documents", text,
          bound_of(text, [&](int64_t most) { return text::encode_text(*model_.tokenizer, text, most, true, at_end); }),
          true);
    }
    for (size_t i = 0; i < second.size(); ++i) call_.compared.emplace_back(first.size() == 1 ? 0 : i, first.size() + i);
  }

  void read_pairs(const std::vector<std::string>& first, const std::vector<std::string>& second) {
    const std::string instruction = f_.text("instruct", f_.text("instruction", ""));
    if (f_.error() || !want_tokenizer("documents")) return;
    if (model_.pooling.gives_vectors()) {
      if (!instruction.empty()) f_.fail("instruct", "this model compares vectors and is told no instruction");
      return compare(first, second);
    }
    for (size_t i = 0; i < second.size(); ++i) {
      const auto encode = [&](int64_t most) {
        return text::encode_query(*model_.tokenizer, model_.pooling.kind == PoolKind::YesNo, instruction,
                                  first[first.size() == 1 ? 0 : i], second[i], most);
      };
      auto ids = encode(bound_of(second[i], encode));
      if (!ids) return f_.fail(call_.form == PooledForm::Rerank ? "query" : "text_1", ids.status().message());
      add(std::move(*ids));
    }
  }

  void read_scores() {
    if (f_.has("max_chunks_per_doc"))
      return f_.fail("max_chunks_per_doc",
                     "documents are not ranked in parts here; max_tokens_per_doc says how much of each is read");
    if (call_.form == PooledForm::Score) {
      const auto first = texts_of({"text_1", "queries", "data_1"}),
                 second = texts_of({"text_2", "documents", "items", "data_2"});
      if (!f_.error() && first.size() != 1 && first.size() != second.size())
        f_.fail("text_1", fmt::format("one text, or as many as text_2 has ({}), are expected", second.size()));
      return read_pairs(first, second);
    }
    const auto query = texts_of({"query"});
    if (f_.has("rank_fields")) rank_fields_ = f_.texts("rank_fields", kMostRankFields);
    if (!f_.error() && rank_fields_.empty()) f_.fail("rank_fields", "names of fields are expected");
    most_of_document_ = f_.maybe_integer("max_tokens_per_doc", 1, INT32_MAX);
    const auto documents = texts_of({"documents"});
    if (!f_.error() && query.size() != 1) f_.fail("query", "one text is expected");
    call_.top_n = f_.maybe_integer("top_n", 1, INT32_MAX).value_or(0);
    const bool repeat = f_.flag("return_documents", false);
    if (f_.error()) return;
    read_pairs(query, documents);
    if (repeat) call_.documents = documents;
  }

  const Json& body_;
  const ServedModel& model_;
  const CallLimits& limits_;
  Fields f_;
  PooledCall call_;
  std::vector<std::string> rank_fields_{"text"};  // of documents that are objects
  std::optional<int64_t> most_of_document_;       // tokens
};

}  // namespace

int64_t PooledCall::tokens() const {
  int64_t sum = 0;
  for (const auto& ids : texts) sum += static_cast<int64_t>(ids.size());
  return sum;
}

std::vector<float> scores_of(const PooledCall& call, const std::vector<std::vector<float>>& rows) {
  std::vector<float> out;
  for (const auto& [a, b] : call.compared) out.push_back(static_cast<float>(cosine(rows[a], rows[b])));
  if (call.compared.empty())
    for (const auto& row : rows) out.push_back(row.front());
  return out;
}

ParsedPooledCall parse_pooled(const Json& body, PooledForm form, const ServedModel& model, const CallLimits& limits) {
  return Reader(body, form, model, limits).read();
}

std::optional<ApiError> refuse_to_generate(const ServedModel& model) {
  if (model.pooled_size == 0) return std::nullopt;
  const bool vectors = model.pooling.gives_vectors();
  return ApiError{
      400,
      fmt::format("\"{}\" gives {}; it does not write text (use {})", model.name,
                  vectors ? "embeddings" : "scores of documents", vectors ? "/v1/embeddings" : "/v1/rerank"),
      "model"};
}

}  // namespace reprise::server
