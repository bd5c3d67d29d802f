#include "ops/kernel.h"

#include <algorithm>

namespace reprise {
namespace {

// What the registry asks of every entry, then what the entry asks of the call.
Status verdict(const KernelEntry& e, const OpCall& call) {
  for (size_t i = 0; i < call.in.size(); ++i)
    if (call.op->operands[i].is_index() && call.in[i].dtype != e.index_dtype)
      return error(Code::Unsupported, "takes {} indices, and {} is {}", dtype_name(e.index_dtype),
                   call.op->operands[i].name, dtype_name(call.in[i].dtype));
  return e.accepts(call);
}

}  // namespace

void KernelRegistry::add(KernelEntry entry) {
  CHECK(entry.accepts && entry.bind && entry.part[0], "kernel {} is incomplete", entry.name);
  CHECK(!find(entry.name), "kernel {} is registered twice", entry.name);
  entries_.push_back(std::make_unique<KernelEntry>(std::move(entry)));
  by_op_[entries_.back()->op].push_back(entries_.back().get());
}

const KernelEntry* KernelRegistry::find(std::string_view name) const {
  for (auto& e : entries_)
    if (e->name == name) return e.get();
  return nullptr;
}

void KernelRegistry::add(ParamLayout layout) {
  CHECK(layout.bytes && layout.pack, "layout {} is incomplete", layout.name);
  layouts_.push_back(std::make_unique<ParamLayout>(std::move(layout)));
}

Result<const KernelEntry*> KernelRegistry::choose(DeviceKind device, const OpCall& call,
                                                  std::span<const KernelEntry* const> refused) const {
  const KernelEntry* best = nullptr;
  const KernelEntry* tie = nullptr;
  // What was said now: a refusal may be of this moment only, and asking anew would not tell it.
  std::string refusals;
  if (auto it = by_op_.find(call.op->name); it != by_op_.end()) {
    for (const KernelEntry* e : it->second) {
      if (e->device != device) continue;
      const bool before = std::find(refused.begin(), refused.end(), e) != refused.end();
      if (const Status s = before ? error(Code::Unsupported, "refused at its largest sizes") : verdict(*e, call);
          !s.is_ok()) {
        refusals += fmt::format("  {}: {}\n", e->name, s.message());
        continue;
      }
      if (!best || e->score > best->score) {
        best = e;
        tie = nullptr;
      } else if (e->score == best->score) {
        tie = e;
      }
    }
  }
  if (!best)
    return error(Code::Unsupported, "no {} kernel for {}:\n{}", device_kind_name(device), describe(call),
                 refusals.empty() ? explain(device, call) : refusals);
  if (tie)
    return error(Code::Internal, "kernels {} and {} accept {} with the same score {}", best->name, tie->name,
                 describe(call), best->score);
  return best;
}

std::string KernelRegistry::explain(DeviceKind device, const OpCall& call) const {
  std::string out;
  if (auto it = by_op_.find(call.op->name); it != by_op_.end())
    for (const KernelEntry* e : it->second) {
      if (e->device != device) continue;
      const Status s = verdict(*e, call);
      out += fmt::format("  {}: {}\n", e->name, s.is_ok() ? fmt::format("accepts, score {}", e->score) : s.message());
    }
  if (out.empty()) out = fmt::format("  nothing is registered for {} on {}\n", call.op->name, device_kind_name(device));
  return out;
}

const ParamLayout* KernelRegistry::layout(DeviceKind device, std::string_view name) const {
  for (auto& l : layouts_)
    if (l->device == device && l->name == name) return l.get();
  return nullptr;
}

std::string describe(const TensorType& type) {
  std::string out = fmt::format("{}[", dtype_name(type.dtype));
  for (int i = 0; i < type.shape.rank(); ++i) {
    if (i) out += ", ";
    const Dim d = type.shape[i];
    if (d.is_constant())
      out += fmt::format("{}", d.factor);
    else if (d.factor == 1)
      out += fmt::format("s{}", d.symbol);
    else
      out += fmt::format("{}*s{}", d.factor, d.symbol);
  }
  return out + "]";
}

std::string describe(const OpCall& call) {
  std::string out = call.op->name + "(";
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (i) out += ", ";
    out += describe(call.in[i]);
  }
  return out + ")";
}

}  // namespace reprise
