#include "compile/binding.h"

#include <algorithm>

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
    const KernelEntry& e = *s.kernel.at(u.user);
    std::vector<std::string> accepted =
        has_own_layout(*u.user->op, u.operand) ? accepted_layouts(e) : std::vector<std::string>{"row_major"};
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

}  // namespace

bool has_own_layout(const OpSchema& op, size_t operand) {
  const std::string& name = op.operands[operand].name;
  return op.has(op_flag::kParamLayout) && (name == "weight" || name == "table" || name == "value_weight");
}

Result<KernelSelection> select_kernels(const Graph& graph, const Platform& platform) {
  KernelSelection s;
  const DeviceInfo& device = platform.device->info();
  for (const Node* n = graph.first(); n; n = n->next) {
    if (n->op->has(op_flag::kSource) || n->op->has(op_flag::kView)) continue;
    const auto in = n->in_types(), out = n->out_types();
    const OpCall call{n->op, in, out, &n->attrs, {}};
    ASSIGN_OR_RETURN(const KernelEntry* entry, platform.kernels->choose(device.kind, call));
    s.kernel[n] = entry;
    if (entry->workspace) s.workspace[n] = entry->workspace(call, graph.bounds(), device.ranks);
  }
  for (const Node* n = graph.first(); n; n = n->next) {
    if (n->op->name != "param") continue;
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
