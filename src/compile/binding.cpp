#include "compile/binding.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/log.h"

namespace reprise {
namespace {

const std::vector<std::string>& accepted_layouts(const KernelEntry& e) {
  static const std::vector<std::string> row_major{"row_major"};
  return e.param_layouts.empty() ? row_major : e.param_layouts;
}

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (auto& n : names) out += out.empty() ? n : ", " + n;
  return out;
}

// The first layout of the first user that all other users accept too.
Result<std::string> common_layout(const Node& param, const KernelSelection& s) {
  std::vector<std::string> common;
  std::string users;
  bool first = true;
  for (const Use& u : param.result()->uses) {
    if (u.user->is_hint()) continue;  // bytes, however they lie
    const KernelEntry& e = *s.kernel.at(u.user);
    std::vector<std::string> accepted =
        u.declared().has_own_layout() ? accepted_layouts(e) : std::vector<std::string>{"row_major"};
    users += fmt::format("\n  {} accepts {}", e.name, join(accepted));
    if (first)
      common = accepted;
    else
      std::erase_if(common, [&](auto& l) { return std::find(accepted.begin(), accepted.end(), l) == accepted.end(); });
    first = false;
  }
  if (first) return std::string("row_major");
  if (common.empty())
    return error(Code::Unsupported, "the users of parameter {} accept no common layout:{}", param.attrs.text("name"),
                 users);
  return common.front();
}

struct Chosen {
  const KernelEntry* entry = nullptr;
  size_t workspace = 0;
};

// Once for each reason: programs of several sizes choose the same kernels.
void announce_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  std::lock_guard lock(mutex);
  if (reported.insert(text).second) log::notice("{}", text);
}

void announce_refusals(const KernelEntry& chosen, const OpCall& call, const Platform& platform) {
  for (const auto& e : platform.kernels->entries()) {
    if (!e->announced || e->op != chosen.op || e->device != chosen.device || e->score <= chosen.score) continue;
    if (const Status why = e->accepts(call); !why.is_ok())
      announce_once(fmt::format("{} runs instead of {}: {}", chosen.name, e->name, why.message()));
  }
}

// The best kernel that runs at the bounds, too. A kernel that takes the call but not these sizes is passed over, which
// is told; where no other one takes the call, its reason is the error.
Result<Chosen> choose_at(const LiveSizes& bounds, const OpCall& call, const Platform& platform) {
  const DeviceInfo& device = platform.device->info();
  std::vector<const KernelEntry*> refused;
  Status why = Status::ok();
  for (;;) {
    Result<const KernelEntry*> entry = platform.kernels->choose(device.kind, call, refused);
    if (!entry.is_ok()) return why.is_ok() ? entry.status() : why;
    if (!(*entry)->workspace) return Chosen{*entry, 0};
    Result<size_t> bytes = (*entry)->workspace(call, bounds, device.threads);
    if (bytes.is_ok()) return Chosen{*entry, *bytes};
    const Status said = bytes.status().at((*entry)->name);
    announce_once(fmt::format("{}: {}; looking for another kernel", describe(call), said.message()));
    if (why.is_ok()) why = said;
    refused.push_back(*entry);
  }
}

}  // namespace

Result<KernelSelection> select_kernels(const Graph& graph, const Platform& platform) {
  KernelSelection s;
  const DeviceInfo& device = platform.device->info();
  for (const Node* n = graph.first(); n; n = n->next) {
    if (n->is_source() || n->is_view()) continue;
    const auto in = n->in_types(), out = n->out_types();
    const OpCall call{n->op, in, out, &n->attrs, {}};
    ASSIGN_OR_RETURN(const auto chosen, choose_at(graph.bounds(), call, platform));
    s.kernel[n] = chosen.entry;
    announce_refusals(*chosen.entry, call, platform);
    if (chosen.entry->workspace) s.workspace[n] = chosen.workspace;
  }
  for (const Node* n = graph.first(); n; n = n->next) {
    if (!n->is_param()) continue;
    ASSIGN_OR_RETURN(std::string name, common_layout(*n, s));
    ParamPlan p;
    p.name = n->attrs.text("name");
    p.type = n->result()->type;
    if (name != "row_major") {
      p.layout = platform.kernels->layout(device.kind, name);
      if (!p.layout) return error(Code::Internal, "layout {} is accepted by a kernel but not registered", name);
      p.bytes = p.layout->bytes(p.type);
    } else {
      p.bytes = static_cast<size_t>(p.type.shape.elements(LiveSizes{})) * size_of(p.type.dtype);
    }
    s.param_index[p.name] = s.params.size();
    s.params.push_back(std::move(p));
  }
  return s;
}

}  // namespace reprise
