#include "engine/replay_case.h"

#include <algorithm>
#include <limits>

namespace reprise::engine {
namespace {

// More than any engine takes: sequences of a step, tokens of a sequence.
constexpr size_t kMostSequences = 4096;
constexpr int64_t kMostTokens = int64_t{1} << 24;

// A value in words that fit into a line.
std::string shown(const Json& v) {
  constexpr size_t kMost = 40;
  std::string text =
      v.is_structured() ? std::string(v.type_name()) : v.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

Result<int64_t> integer(const Json& v, const std::string& where, int64_t low, int64_t high) {
  const bool fits = v.is_number_integer() &&
                    !(v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(high)) &&
                    v.get<int64_t>() >= low && v.get<int64_t>() <= high;
  if (!fits) return invalid("{} is {}; allowed: whole numbers from {} to {}", where, shown(v), low, high);
  return v.get<int64_t>();
}

Result<const Json*> member(const Json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) return invalid("{} has no \"{}\"", where, name);
  return &*found;
}

Result<std::vector<int32_t>> tokens_of(const Json& list, const std::string& where) {
  if (!list.is_array() || list.empty() || list.size() > static_cast<size_t>(kMostTokens))
    return invalid("{} is {}; allowed: a list of 1 to {} token ids", where,
                   list.is_array() ? fmt::format("a list of {}", list.size()) : shown(list), kMostTokens);
  std::vector<int32_t> out;
  out.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t id,
                     integer(list[i], fmt::format("{}[{}]", where, i), 0, std::numeric_limits<int32_t>::max()));
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

Result<bool> all_logits(const Json& object, const std::string& where) {
  const auto found = object.find("logits");
  if (found == object.end()) return false;
  const std::string* said = found->get_ptr<const std::string*>();
  if (!said || (*said != "none" && *said != "last" && *said != "all"))
    return invalid("{}.logits is {}; allowed: \"none\", \"last\", \"all\"", where, shown(*found));
  return *said == "all";
}

Result<ReplayCase::Part> part_of(const Json& object, const std::string& where) {
  constexpr std::string_view kFields[] = {"tokens", "cached", "count", "logits", "drafts"};
  if (!object.is_object())
    return invalid("{} is {}; allowed: an object with {}", where, shown(object), fmt::join(kFields, ", "));
  for (const auto& [name, value] : object.items())
    if (std::find(std::begin(kFields), std::end(kFields), name) == std::end(kFields))
      return invalid("{} has the unknown field {}; allowed: {}", where, shown(Json(name)), fmt::join(kFields, ", "));
  ReplayCase::Part part;
  ASSIGN_OR_RETURN(const Json* tokens, member(object, "tokens", where));
  ASSIGN_OR_RETURN(part.tokens, tokens_of(*tokens, where + ".tokens"));
  const auto size = static_cast<int64_t>(part.tokens.size());
  ASSIGN_OR_RETURN(const Json* cached, member(object, "cached", where));
  ASSIGN_OR_RETURN(part.cached, integer(*cached, where + ".cached", 0, size - 1));
  ASSIGN_OR_RETURN(const Json* count, member(object, "count", where));
  ASSIGN_OR_RETURN(part.count, integer(*count, where + ".count", 1, size - part.cached));
  ASSIGN_OR_RETURN(part.all, all_logits(object, where));
  if (const auto drafts = object.find("drafts"); drafts != object.end()) {
    ASSIGN_OR_RETURN(part.drafts, integer(*drafts, where + ".drafts", 0, part.count - 1));
    if (part.drafts > 0 && part.cached + part.count != size)
      return invalid("{}.drafts is {}; allowed: 0 where cached and count are not all of its tokens", where,
                     part.drafts);
  }
  return part;
}

Status within(const std::string& what, int64_t value, int64_t high, std::string_view flag) {
  if (value <= high) return Status::ok();
  return invalid("{} is {}; allowed: up to {} ({})", what, value, high, flag);
}

}  // namespace

int64_t ReplayCase::most_drafts() const {
  int64_t most = 0;
  for (const Part& p : sequences) most = std::max(most, p.drafts);
  return most;
}

int64_t ReplayCase::rows() const {
  int64_t rows = 0;
  for (const Part& p : sequences) rows += p.all ? p.count : 1;
  return rows;
}

Result<ReplayCase> parse_case(std::string_view text, std::string_view source) {
  ASSIGN_OR_RETURN(const Json file, parse_json(text, source));
  if (!file.is_object())
    return invalid("{}: {} is not a replay report; it has no list \"sequences\"", source, shown(file));
  const auto list = file.find("sequences");
  if (list == file.end() || !list->is_array() || list->empty() || list->size() > kMostSequences)
    return invalid("{}: sequences is {}; allowed: a list of 1 to {} sequences", source,
                   list == file.end() ? "missing"
                   : list->is_array() ? fmt::format("a list of {}", list->size())
                                      : shown(*list),
                   kMostSequences);
  ReplayCase out;
  for (size_t i = 0; i < list->size(); ++i) {
    auto part = part_of((*list)[i], fmt::format("sequences[{}]", i));
    if (!part.is_ok()) return part.status().at(source);
    out.sequences.push_back(std::move(*part));
  }
  return out;
}

CaseLimits limits_of(const Executor& e) {
  return {e.vocab_size(), e.context_length(), e.max_step_tokens(), e.max_step_rows(), e.max_verify_rows()};
}

Status check_case(const ReplayCase& c, const CaseLimits& limits, std::string_view source) {
  const auto check = [&]() -> Status {
    int64_t tokens = 0;
    const auto sequences = static_cast<int64_t>(c.sequences.size());
    RETURN_IF_ERROR(within("the number of sequences", sequences, limits.step_rows, "`max_running_requests`"));
    for (size_t i = 0; i < c.sequences.size(); ++i) {
      const ReplayCase::Part& p = c.sequences[i];
      const std::string where = fmt::format("sequences[{}]", i);
      RETURN_IF_ERROR(within(where + ".cached and count together", p.cached + p.count, limits.context,
                             "the context; `context_length`"));
      for (size_t t = 0; t < static_cast<size_t>(p.cached + p.count); ++t)
        if (p.tokens[t] >= limits.vocabulary)
          return invalid("{}.tokens[{}] is {}; allowed: 0 to {} (the model's vocabulary)", where, t, p.tokens[t],
                         limits.vocabulary - 1);
      tokens += p.count;
    }
    RETURN_IF_ERROR(within("the sum of count", tokens, limits.step_tokens, "`chunked_prefill_size`"));
    const bool drafts = c.most_drafts() > 0;
    return within("the number of rows with logits", c.rows(), drafts ? limits.draft_rows : limits.step_rows,
                  drafts ? "with drafts; `speculative_max_rows`" : "`max_running_requests`");
  };
  return check().at(source);
}

OrderedJson items_json(std::span<const StepItem> items) {
  OrderedJson j = OrderedJson::array();
  for (const StepItem& item : items) {
    std::vector<int32_t> tokens = item.sequence->tokens();
    tokens.insert(tokens.end(), item.drafts.begin(), item.drafts.end());
    j.push_back({{"tokens", std::move(tokens)},
                 {"cached", item.sequence->cached()},
                 {"count", item.count},
                 {"logits", item.logits > 1    ? "all"
                            : item.logits == 1 ? "last"
                                               : "none"}});
    if (!item.drafts.empty()) j.back()["drafts"] = item.drafts.size();
  }
  return j;
}

}  // namespace reprise::engine
