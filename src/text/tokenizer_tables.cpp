#include "text/tokenizer_tables.h"

#include "text/tokenizer_vocabulary.h"

namespace reprise::text {
namespace {

constexpr std::string_view kMergeForm = "must be two tokens with one space between, or an array of two strings";

std::string id_form() { return fmt::format("must be a whole number between 0 and {}", Vocabulary::kMaxId); }

// Builds the Json tree of everything but the two tables, which go to TokenizerTables as they pass by.
class TableReader : public nlohmann::json_sax<Json> {
 public:
  TableReader(TokenizerTables* tables, Json* rest, std::string_view source)
      : tables_(tables), rest_(rest), source_(source) {}

  const Status& status() const { return status_; }

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_float(double v, const std::string&) override { return value(v); }
  bool binary(Json::binary_t&) override { return fail(invalid("{}: binary values are not JSON", source_)); }
  bool number_integer(int64_t v) override { return in_ == In::Vocab ? token(v) : value(v); }
  bool number_unsigned(uint64_t v) override {
    if (in_ == In::Vocab) return token(v > INT64_MAX ? -1 : static_cast<int64_t>(v));
    return value(v);
  }
  bool string(std::string& v) override {
    if (in_ == In::Merges) {
      const Status added = tables_->add_merge_line(v);
      ++merge_;
      return added.is_ok() || fail(added.at(fmt::format("{}: model.merges[{}]", source_, merge_ - 1)));
    }
    if (in_ == In::Pair && pair_size_ < 2) {
      pair_[pair_size_++].swap(v);
      return true;
    }
    return value(std::move(v));
  }
  bool key(std::string& v) override {
    key_.swap(v);
    return true;
  }

  bool start_object(size_t) override {
    const bool is_vocab = open_.size() == 2 && path_[1] == "model" && key_ == "vocab";
    if (!open(Json::object())) return false;
    if (is_vocab) in_ = In::Vocab;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override {
    if (in_ == In::Merges) {
      in_ = In::Pair;
      pair_size_ = 0;
      return true;
    }
    const bool is_merges = open_.size() == 2 && path_[1] == "model" && key_ == "merges";
    if (!open(Json::array())) return false;
    if (is_merges) in_ = In::Merges;
    return true;
  }
  bool end_array() override {
    if (in_ != In::Pair) return close();
    if (pair_size_ != 2) return wrong_merge();
    tables_->add_merge(pair_[0], pair_[1]);
    in_ = In::Merges;
    ++merge_;
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& e) override {
    std::string_view what = e.what();
    if (auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
    return fail(invalid("{}: not valid JSON: {}", source_, what));
  }

 private:
  enum class In : uint8_t { Rest, Vocab, Merges, Pair };

  bool fail(Status status) {
    if (status_) status_ = std::move(status);
    return false;
  }
  bool wrong_merge() { return fail(invalid("{}: model.merges[{}]: {}", source_, merge_, kMergeForm)); }
  bool wrong_id() { return fail(invalid("{}: model.vocab: the id of \"{}\" {}", source_, key_, id_form())); }

  bool token(int64_t id) {
    if (id < 0 || id > Vocabulary::kMaxId) return wrong_id();
    tables_->add_token(key_, id);
    return true;
  }

  // Puts a value where the text has it; nothing in the tables may be one.
  Json* place(Json v) {
    if (open_.empty()) {
      *rest_ = std::move(v);
      return rest_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(v);
    return &slot;
  }
  bool value(Json v) {
    if (in_ == In::Vocab) return wrong_id();
    if (in_ != In::Rest) return wrong_merge();
    place(std::move(v));
    return true;
  }
  bool open(Json v) {
    if (in_ == In::Vocab) return wrong_id();
    if (in_ != In::Rest) return wrong_merge();
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth))
      return fail(invalid("{}: JSON nested deeper than {} levels", source_, kMaxJsonDepth));
    path_.push_back(open_.empty() ? "" : key_);
    open_.push_back(place(std::move(v)));
    return true;
  }
  bool close() {
    in_ = In::Rest;
    path_.pop_back();
    open_.pop_back();
    return true;
  }

  TokenizerTables* tables_;
  Json* rest_;
  std::string_view source_;
  Status status_;
  std::vector<Json*> open_;        // objects and arrays around the current place
  std::vector<std::string> path_;  // their keys
  std::string key_;
  In in_ = In::Rest;
  std::string pair_[2];
  size_t pair_size_ = 0;
  size_t merge_ = 0;
};

}  // namespace

void TokenizerTables::add_token(std::string_view token, int64_t id) {
  tokens_.push_back({bytes_.size(), static_cast<uint32_t>(token.size()), id});
  bytes_ += token;
}

void TokenizerTables::add_merge(std::string_view left, std::string_view right) {
  merges_.push_back({bytes_.size(), static_cast<uint32_t>(left.size()), static_cast<uint32_t>(right.size())});
  bytes_ += left;
  bytes_ += right;
}

Status TokenizerTables::add_merge_line(std::string_view line) {
  if (line.starts_with("#version")) return Status::ok();
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
    return invalid("{}, not \"{}\"", kMergeForm, line);
  add_merge(line.substr(0, space), line.substr(space + 1));
  return Status::ok();
}

Result<TokenizerTables> TokenizerTables::from_json(const JsonPlace& model) {
  TokenizerTables tables;
  const JsonPlace vocab = model["vocab"];
  for (auto it = vocab.json().begin(); it != vocab.json().end(); ++it) {
    const Json& id = it.value();
    const bool is_id = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= Vocabulary::kMaxId;
    if (!is_id) return vocab.error("the id of \"{}\" {}", it.key(), id_form());
    tables.add_token(it.key(), id.get<int64_t>());
  }
  if (!model.has("merges")) return tables;
  const JsonPlace merges = model["merges"];
  for (size_t i = 0; i < merges.json().size(); ++i) {
    const Json& merge = merges.json()[i];
    Status added;
    if (merge.is_string()) {
      added = tables.add_merge_line(merge.get_ref<const std::string&>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      tables.add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
    } else {
      added = invalid("{}", kMergeForm);
    }
    if (!added) return added.at(fmt::format("{}[{}]", merges.path(), i));
  }
  return tables;
}

Result<TokenizerTables> TokenizerTables::from_text(std::string_view text, std::string_view source, Json* rest) {
  TokenizerTables tables;
  tables.bytes_.reserve(text.size() / 2);
  TableReader reader(&tables, rest, source);
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) {
    if (!reader.status()) return reader.status();
    return invalid("{}: not valid JSON", source);
  }
  return tables;
}

}  // namespace reprise::text
