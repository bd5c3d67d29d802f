#include "see/explain.h"

#include <algorithm>

#include "see/decisions.h"
#include "see/product_report.h"
#include "see/queue_table.h"
#include "see/stream_report.h"

namespace reprise::see {

std::map<std::string, int> kernel_calls(const CompiledModel& m) {
  std::map<std::string, int> calls;
  for (const auto& piece : m.pieces())
    for (const Thunk& t : piece.thunks) ++calls[m.kernel(t.node)->name];
  return calls;
}

namespace {

// The number of a layer stands for all of them.
Held held_of(const Node& param) {
  std::string name = param.attrs.text("name");
  Held h;
  if (const size_t bracket = name.find('['); bracket != std::string::npos) {
    h.part = name.substr(bracket);
    name.resize(bracket);
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && digit(name[end])) ++end;
    const bool number = end > i && i > 0 && name[i - 1] == '.' && end < name.size() && name[end] == '.';
    h.name += number ? "N" : name.substr(i, std::max<size_t>(1, end - i));
    i = std::max(end, i + 1);
  }
  const TensorType& type = param.result()->type;
  h.bytes = type.shape.elements(LiveSizes{}) * static_cast<int64_t>(size_of(type.dtype));
  h.count = 1;
  return h;
}

void add_held(const Node& param, std::vector<Held>& all) {
  const Held here = held_of(param);
  for (Held& h : all)
    if (h.name == here.name && h.part == here.part) {
      ++h.count;
      h.bytes += here.bytes;
      return;
    }
  all.push_back(here);
}

}  // namespace

std::optional<RankContents> contents_of_rank(const engine::Engine& e, const CompiledModel& m) {
  const auto& member = e.options().member;
  if (!member) return std::nullopt;
  const engine::MemoryReport memory = e.memory();
  RankContents out{
      member->world().rank, member->world().size, memory.weight_bytes, memory.kv_bytes, memory.exchange_bytes, {}, {}};
  const auto row_of = [](const Value* v) {
    const Shape& shape = v->type.shape;
    return shape.rank() > 1 ? shape[1].factor * static_cast<int64_t>(size_of(v->type.dtype)) : 0;
  };
  for (const Node* n = m.graph().first(); n; n = n->next) {
    if (n->is_param()) add_held(*n, out.held);
    if (!n->op->has(op_trait::kCollective)) continue;
    const Exchange here{n->op->name, 1, row_of(n->result()), row_of(n->in[0])};
    const auto known = std::find_if(out.exchanges.begin(), out.exchanges.end(), [&](const Exchange& x) {
      return x.op == here.op && x.row_bytes == here.row_bytes && x.own_bytes == here.own_bytes;
    });
    if (known == out.exchanges.end())
      out.exchanges.push_back(here);
    else
      ++known->count;
  }
  if (const engine::RankDraws* hosts = e.rank_draws())
    out.exchanges.push_back({"drawn by hosts", 1, hosts->row_bytes(), hosts->own_row_bytes()});
  return out;
}

OrderedJson contents_json(const RankContents& s) {
  OrderedJson j = {{"rank", s.rank},
                   {"of", s.ranks},
                   {"weight_bytes", s.weight_bytes},
                   {"kv_bytes", s.kv_bytes},
                   {"exchange_bytes", s.exchange_bytes},
                   {"collectives", OrderedJson::array()},
                   {"parameters", OrderedJson::array()}};
  for (const Exchange& x : s.exchanges)
    j["collectives"].push_back(
        {{"op", x.op}, {"count", x.count}, {"row_bytes", x.row_bytes}, {"own_row_bytes", x.own_bytes}});
  for (const Held& h : s.held)
    j["parameters"].push_back({{"name", h.name}, {"part", h.part}, {"count", h.count}, {"bytes", h.bytes}});
  return j;
}

OrderedJson drafts_json(const engine::Engine& e) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [by, places] : e.learned_drafts().all()) {
    OrderedJson verified = OrderedJson::array(), accepted = OrderedJson::array();
    for (const engine::DraftRecord::Place& p : places) {
      verified.push_back(p.verified);
      accepted.push_back(p.accepted);
    }
    out[by] = {{"drafted_per_position", verified}, {"accepted_per_position", accepted}};
  }
  return out;
}

std::string drafts_text(const engine::Engine& e) {
  std::string out;
  for (const auto& [by, places] : e.learned_drafts().all()) {
    size_t width = 6;
    for (const engine::DraftRecord::Place& p : places) width = std::max(width, fmt::format("{}", p.verified).size());
    std::string place, verified, true_ones, share;
    for (size_t i = 0; i < places.size() && places[i].verified > 0; ++i) {
      const engine::DraftRecord::Place& p = places[i];
      place += fmt::format("{:>{}}", i + 1, width + 1);
      verified += fmt::format("{:>{}}", p.verified, width + 1);
      true_ones += fmt::format("{:>{}}", p.accepted, width + 1);
      share += fmt::format("{:>{}.0f} %", 100.0 * static_cast<double>(p.accepted) / static_cast<double>(p.verified),
                           width - 1);
    }
    out += fmt::format("drafts of {:<9}{}\n  verified{:>9}{}\n  came true{:>8}{}\n  share{:>12}{}\n", by, place, "",
                       verified, "", true_ones, "", share);
  }
  return out;
}

OrderedJson explain_json(engine::Engine& e, const PhaseView& v) {
  OrderedJson j;
  j["passes"] = passes_json(*v.passes);
  j["pieces"] = pieces_json(v.model());
  j["kernels"] = kernel_calls(v.model());
  for (const engine::PhaseSpec& phase : e.phases()) j["sizes"][std::string(phase.name)] = e.runner(phase.name)->sizes();
  const auto live = e.device().pool().stats().live_by_label;
  const auto found = live.find("activations");
  OrderedJson by_size = OrderedJson::array();
  for (const engine::PhaseSpec& phase : e.phases()) {
    const engine::StepRunner* runner = e.runner(phase.name);
    OrderedJson graphs = OrderedJson::array();
    for (const int64_t size : runner->sizes()) {
      size_t bytes = 0;
      for (const CompiledModel* m : runner->models()) bytes += m->capture_bytes(size);
      if (bytes > 0) graphs.push_back({{"size", size}, {"bytes", bytes}});
    }
    by_size.push_back({{"size", runner->largest()}, {"bytes", runner->planned_bytes()}, {"graphs", graphs}});
  }
  size_t planned = 0;
  for (auto& b : by_size) planned = std::max(planned, b["bytes"].get<size_t>());
  j["memory"] = {
      {"planned_bytes", planned}, {"actual_bytes", found == live.end() ? 0 : found->second}, {"by_size", by_size}};
  j["fallbacks_possible"] = OrderedJson::array();
  j["decisions"] = OrderedJson::array();
  for (const Decision& d : decisions(e)) {
    j["decisions"].push_back({{"shape", d.shape}, {"mode", d.mode}, {"reason", d.reason}});
    if (!d.replayed()) j["fallbacks_possible"].push_back({{"shape", d.shape}, {"reason", d.reason}});
  }
  j["drafts"] = drafts_json(e);
  if (const auto queues = queue_table(e)) j["queues"] = queue_json(*queues);
  if (const auto streams = stream_report(v.model())) j["streams"] = stream_json(*streams);
  if (const auto products = product_report(v.model())) j["products"] = product_json(*products);
  if (const auto share = contents_of_rank(e, v.model())) j["rank"] = contents_json(*share);
  return j;
}

}  // namespace reprise::see
