#include "engine/adapter_slots.h"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/convert.h"
#include "passes/house_passes.h"

namespace reprise::engine {
namespace {

constexpr size_t kAlignment = 256;

size_t bytes_of(const TensorType& t) { return static_cast<size_t>(t.shape.elements({})) * size_of(t.dtype); }
int64_t size(const TensorType& t, int d) { return t.shape[d].factor; }

Result<std::vector<uint8_t>> narrow(const std::vector<float>& numbers, DType dtype) {
  std::vector<uint8_t> out(numbers.size() * size_of(dtype));
  const std::span bytes(reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(float));
  RETURN_IF_ERROR(
      checkpoint::convert_elements(checkpoint::StorageType::F32, bytes, dtype, out.data(), numbers.size(), nullptr));
  return out;
}

// Those of the [rows, columns] numbers -> [columns, rows of all pieces]
std::vector<float> transposed(const std::vector<float>& m, const std::vector<Cut>& pieces, int64_t columns) {
  std::vector<float> out;
  for (int64_t c = 0; c < columns; ++c)
    for (const Cut& piece : pieces)
      for (int64_t r = piece.first; r < piece.first + piece.count; ++r)
        out.push_back(m[static_cast<size_t>(r * columns + c)]);
  return out;
}

}  // namespace

Result<AdapterSlots> AdapterSlots::create(MemoryPool& memory, Stream& stream,
                                          std::span<const std::pair<std::string, TensorType>> inputs, int64_t slots,
                                          int64_t rank) {
  AdapterSlots out;
  std::map<std::string, Target> targets;
  for (const auto& [name, type] : inputs) {
    const size_t dot = name.rfind('.');
    std::string leaf = name.substr(dot + 1);
    std::vector<Cut> columns = take_pieces(leaf);
    Target& t = targets[name.substr(kLoraPrefix.size(), dot - kLoraPrefix.size())];
    if (leaf == "a") t.a = type;
    if (leaf != "b") continue;
    t.b = type;
    t.b_input = name;
    t.columns = std::move(columns);
  }
  size_t end = 0;
  const auto place = [&](size_t bytes) {
    const size_t at = end;
    end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  for (auto& [module, t] : targets) {
    t.module = module;
    t.a_at = place(bytes_of(t.a));
    t.b_at = place(bytes_of(t.b));
    t.ranks_at = place(static_cast<size_t>(slots) * sizeof(int32_t));
    t.scales_at = place(static_cast<size_t>(slots) * sizeof(float));
    out.targets_.push_back(t);
  }
  if (out.targets_.empty())
    return error(Code::Unsupported, "`max_loras` {}: this model has no linear layer that takes adapters; allowed: 0",
                 slots);
  ASSIGN_OR_RETURN(out.buffer_, memory.allocate(end, "LoRA adapters"));
  out.used_.assign(static_cast<size_t>(slots), false);
  out.rank_ = rank;
  out.stream_ = &stream;
  return out;
}

int64_t AdapterSlots::loaded() const { return std::count(used_.begin(), used_.end(), true); }

std::vector<std::string> AdapterSlots::modules() const {
  std::vector<std::string> out;
  for (const Target& t : targets_) out.push_back(t.module);
  return out;
}

std::unordered_map<std::string, void*> AdapterSlots::addresses() const {
  std::unordered_map<std::string, void*> out;
  for (const Target& t : targets_) {
    const std::string name = std::string(kLoraPrefix) + t.module;
    out[name + ".a"] = at<void>(t.a_at);
    out[t.b_input] = at<void>(t.b_at);
    out[name + ".ranks"] = at<void>(t.ranks_at);
    out[name + ".scales"] = at<void>(t.scales_at);
  }
  return out;
}

Result<size_t> AdapterSlots::find(const checkpoint::LoraAdapter& adapter, const checkpoint::LoraModule& m) const {
  const auto it = std::lower_bound(targets_.begin(), targets_.end(), m.name,
                                   [](const Target& t, const std::string& name) { return t.module < name; });
  if (it == targets_.end() || it->module != m.name) {
    std::set<std::string> known;
    for (const Target& t : targets_) known.insert(t.module.substr(t.module.rfind('.') + 1));
    return invalid("{}: {} is no linear layer of this model that takes adapters; allowed: {} of its {} layers",
                   adapter.source(), m.name, fmt::join(known, ", "), targets_.size());
  }
  if (m.in != size(it->a, 2) || m.out != it->out())
    return invalid("{}: {} is for a layer of {} -> {}; this model's is {} -> {}", adapter.source(), m.name, m.in, m.out,
                   size(it->a, 2), it->out());
  if (m.rank > rank_)
    return invalid("{}: {} has rank {}; `max_lora_rank` allows up to {}", adapter.source(), m.name, m.rank, rank_);
  return static_cast<size_t>(it - targets_.begin());
}

Result<PreparedAdapter> AdapterSlots::prepare(const checkpoint::LoraAdapter& adapter) const {
  PreparedAdapter out{adapter.source(), adapter.config().base_model(), adapter.rank(), {}};
  for (const checkpoint::LoraModule& m : adapter.modules()) {
    PreparedAdapter::Layer layer;
    layer.rank = static_cast<int32_t>(m.rank);
    layer.scale = static_cast<float>(m.scale);
    ASSIGN_OR_RETURN(layer.target, find(adapter, m));
    const Target& target = targets_[layer.target];
    ASSIGN_OR_RETURN(const std::vector<float> a, adapter.read(*m.a));
    ASSIGN_OR_RETURN(const std::vector<float> b, adapter.read(*m.b));
    ASSIGN_OR_RETURN(layer.a, narrow(a, target.a.dtype));
    const std::vector<Cut> columns = target.columns.empty() ? std::vector<Cut>{{0, m.out, m.out}} : target.columns;
    ASSIGN_OR_RETURN(layer.b, narrow(transposed(b, columns, m.rank), target.b.dtype));
    out.layers.push_back(std::move(layer));
  }
  return out;
}

Result<int32_t> AdapterSlots::load(const PreparedAdapter& adapter) {
  const auto free = std::find(used_.begin(), used_.end(), false);
  if (free == used_.end())
    return error(Code::Busy, "{}: all {} slots of adapters are taken; `max_loras` sets how many there are",
                 adapter.source, used_.size());
  const auto slot = static_cast<size_t>(free - used_.begin());
  const auto id = static_cast<int32_t>(slot) + 1;
  Status copied = copy_layers(adapter, slot);
  if (copied.is_ok() && tell_) {
    copied = tell_(&adapter, id);
    if (!copied.is_ok()) (void)tell_(nullptr, id);
  }
  if (!copied.is_ok()) {
    (void)clear_ranks(slot);  // a part of an adapter must not meet the next one in this slot
    return copied;
  }
  *free = true;
  return id;
}

Status AdapterSlots::copy_layers(const PreparedAdapter& adapter, size_t slot) {
  for (const PreparedAdapter::Layer& l : adapter.layers) {
    const Target& t = targets_[l.target];
    const auto put = [&](void* to, const void* from, size_t bytes) {
      return stream_->copy(to, from, bytes, Copy::HostToDevice);
    };
    RETURN_IF_ERROR(put(at<uint8_t>(t.a_at) + slot * bytes_of(t.a) / used_.size(), l.a.data(), l.a.size()));
    RETURN_IF_ERROR(put(at<uint8_t>(t.b_at) + slot * bytes_of(t.b) / used_.size(), l.b.data(), l.b.size()));
    RETURN_IF_ERROR(put(at<float>(t.scales_at) + slot, &l.scale, sizeof(l.scale)));
    RETURN_IF_ERROR(put(at<int32_t>(t.ranks_at) + slot, &l.rank, sizeof(l.rank)));
  }
  return stream_->synchronize();
}

// A rank of zero is no adapter.
Status AdapterSlots::clear_ranks(size_t slot) {
  constexpr int32_t kNone = 0;
  for (const Target& t : targets_)
    RETURN_IF_ERROR(stream_->copy(at<int32_t>(t.ranks_at) + slot, &kNone, sizeof(kNone), Copy::HostToDevice));
  return stream_->synchronize();
}

Status AdapterSlots::unload(int32_t slot) {
  const auto i = static_cast<size_t>(slot) - 1;
  if (slot < 1 || i >= used_.size() || !used_[i]) return error(Code::Internal, "no adapter is in slot {}", slot);
  RETURN_IF_ERROR(clear_ranks(i));
  used_[i] = false;
  return tell_ ? tell_(nullptr, slot) : Status::ok();
}

}  // namespace reprise::engine
