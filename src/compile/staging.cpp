#include "compile/staging.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "compile/memory_plan.h"

namespace reprise {

TensorView view_of(const TensorType& type, const LiveSizes& live, void* data) {
  TensorView v;
  v.data = data;
  v.dtype = type.dtype;
  for (Dim d : type.shape.dims()) v.size[v.rank++] = d.value(live);
  int64_t step = 1;
  for (int i = v.rank - 1; i >= 0; --i) {
    v.stride[i] = step;
    step *= v.size[i];
  }
  return v;
}

void Staging::declare(const Graph& graph, const std::unordered_map<std::string, void*>& external) {
  const LiveSizes bounds = graph.bounds();
  for (const Node* n = graph.first(); n; n = n->next) {
    if (!n->is_input()) continue;
    const std::string& name = n->attrs.text("name");
    if (external.contains(name)) continue;
    const TensorType& type = n->result()->type;
    const size_t bytes = static_cast<size_t>(type.shape.elements(bounds)) * size_of(type.dtype);
    Entry& e = entries_[name];
    if (bytes >= e.bytes) {
      e.bytes = bytes;
      e.view = view_of(type, bounds, nullptr);
    }
  }
}

size_t Staging::place() {
  size_t total = 0;
  std::map<std::pair<size_t, std::string_view>, Entry*> by_size;  // in an order that is the same on all ranks
  for (auto& [name, e] : entries_) by_size[{e.bytes, name}] = &e;
  for (auto& [key, e] : by_size) {
    e->offset = total;
    e->used = e->bytes;
    total += (e->bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }
  return total;
}

Status Staging::allocate_alone(Device& device) {
  CHECK(device.info().host_visible && !device.info().asynchronous, "the host writes what the device reads");
  slot_bytes_ = place();
  ASSIGN_OR_RETURN(buffer_, device.pool().allocate(slot_bytes_, "staging"));
  for (auto& [name, e] : entries_) e.view.data = buffer_.as<uint8_t>() + e.offset;
  return Status::ok();
}

Status Staging::allocate(Device& device, int slots_beside) {
  const size_t total = place();
  ASSIGN_OR_RETURN(buffer_, device.shared_pool().allocate(total, "staging"));
  slots_ = device.info().asynchronous ? slots_beside : 1;
  slot_bytes_ = total;
  if (!device.info().host_visible || slots_ > 1) {
    ASSIGN_OR_RETURN(host_, device.host_pool().allocate(static_cast<size_t>(slots_) * total, "staging"));
  }
  if (MemoryPool* pool = device.between_ranks()) {
    CHECK(host_, "ranks copy staged inputs, and the host writes the device's memory");
    ASSIGN_OR_RETURN(between_, pool->allocate(total, "staging of all ranks"));
  }
  for (auto& [name, e] : entries_) e.view.data = (host_ ? host_ : buffer_).as<uint8_t>() + e.offset;
  return Status::ok();
}

Status Staging::upload(Stream& stream) const {
  if (host_) {
    size_t end = 0;
    for (auto& [name, e] : entries_)
      if (e.used > 0) end = std::max(end, e.offset + e.used);
    RETURN_IF_ERROR(stream.copy(buffer_.data(), host_.as<uint8_t>() + host_offset(), end, Copy::HostToDevice));
  }
  for (const Feed& f : feeds_) RETURN_IF_ERROR(stream.copy(f.to, f.source, f.bytes, Copy::DeviceToDevice));
  return Status::ok();
}

std::span<const uint8_t> Staging::shared() const {
  if (between_) return {between_.as<uint8_t>(), slot_bytes_};
  return host_ ? std::span<const uint8_t>() : std::span<const uint8_t>(buffer_.as<uint8_t>(), buffer_.size());
}

void Staging::show() const {
  if (between_) std::memcpy(between_.data(), host_.as<uint8_t>() + host_offset(), slot_bytes_);
}

void Staging::take() {
  if (between_) std::memcpy(host_.as<uint8_t>() + host_offset(), between_.data(), slot_bytes_);
}

void Staging::select(int slot) {
  CHECK(slot >= 0 && slot < slots_, "slot {} of {}", slot, slots_);
  selected_ = slot;
  feeds_.clear();
  for (auto& [name, e] : entries_) e.used = e.bytes;
}

void Staging::feed(std::string_view name, int64_t at, const void* source, int64_t count) {
  const auto it = entries_.find(std::string(name));
  CHECK(it != entries_.end(), "input {} is not staged", name);
  const size_t unit = size_of(it->second.view.dtype);
  CHECK(static_cast<size_t>(at + count) * unit <= it->second.bytes, "elements {} to {} of {}", at, at + count, name);
  feeds_.push_back({buffer_.as<uint8_t>() + it->second.offset + static_cast<size_t>(at) * unit, source,
                    static_cast<size_t>(count) * unit});
}

void Staging::use(std::string_view name, int64_t count) {
  const auto it = entries_.find(std::string(name));
  CHECK(it != entries_.end(), "input {} is not staged", name);
  it->second.used = std::min(it->second.bytes, static_cast<size_t>(count) * size_of(it->second.view.dtype));
}

Result<TensorView> Staging::input(std::string_view name, int slot) const {
  auto it = entries_.find(std::string(name));
  if (it == entries_.end()) return error(Code::NotFound, "the model has no staged input \"{}\"", name);
  TensorView view = it->second.view;
  view.data = static_cast<uint8_t*>(view.data) + static_cast<size_t>(slot) * slot_bytes_;
  return view;
}

void* Staging::address(const std::string& name) const {
  auto it = entries_.find(name);
  CHECK(it != entries_.end() && it->second.view.data, "input {} is not staged", name);
  return buffer_.as<uint8_t>() + it->second.offset;
}

const void* Staging::host_address(const std::string& name) const {
  auto it = entries_.find(name);
  CHECK(it != entries_.end() && it->second.view.data, "input {} is not staged", name);
  return it->second.view.data;
}

}  // namespace reprise
