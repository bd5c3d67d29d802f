#include "compile/param_store.h"

#include <cstring>
#include <functional>
#include <mutex>

#include "passes/derived_param.h"

namespace reprise {

struct ParamStore::Transfer {
  struct Image {
    Buffer bytes;
    int64_t rows_left = 0;  // to be packed
    int packing = 0;        // threads at it
  };

  Transfer(Device& d, std::unique_ptr<Stream> s, std::span<const ParamPlan> params)
      : device(d), stream(std::move(s)), images(params.size()) {
    for (size_t i = 0; i < params.size(); ++i) images[i].rows_left = rows_of(params[i].type.shape);
  }

  // The last thread that packs rows of a parameter sends it.
  Status pack(const ParamPlan& p, size_t index, void* to, int64_t count, const std::function<void(void*)>& pack_into) {
    Image& image = images[index];
    {
      std::lock_guard lock(mutex);
      if (!image.bytes && p.bytes > 0) {
        ASSIGN_OR_RETURN(image.bytes, device.host_pool().allocate(p.bytes, "weights on their way"));
      }
      ++image.packing;
    }
    pack_into(image.bytes.data());
    std::lock_guard lock(mutex);
    --image.packing;
    image.rows_left -= count;
    if (image.rows_left > 0 || image.packing > 0) return Status::ok();
    Status sent = stream->copy(to, image.bytes.data(), p.bytes, Copy::HostToDevice);
    if (sent.is_ok()) sent = stream->synchronize();
    image.bytes = {};
    return sent.at(p.name);
  }

  Device& device;
  std::mutex mutex;
  std::unique_ptr<Stream> stream;
  std::vector<Image> images;
};

void ParamStore::DeleteTransfer::operator()(Transfer* t) const { delete t; }

Result<ParamStore> ParamStore::create(std::vector<ParamPlan> params, Device& device, std::vector<void*> lent) {
  ASSIGN_OR_RETURN(ParamStore store, create(std::move(params), device.pool(), std::move(lent)));
  if (device.info().host_visible) return store;
  ASSIGN_OR_RETURN(auto stream, device.make_stream());
  store.transfer_.reset(new Transfer(device, std::move(stream), store.params_));
  return store;
}

Result<ParamStore> ParamStore::create(std::vector<ParamPlan> params, MemoryPool& pool, std::vector<void*> lent) {
  ParamStore store;
  store.lent_ = std::move(lent);
  constexpr size_t kAlign = 4096;  // big parameters begin on a page of their own
  size_t total = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const size_t align = params[i].bytes >= kAlign ? kAlign : 64;
    total = (total + align - 1) / align * align;
    store.offsets_.push_back(total);
    store.index_[params[i].name] = i;
    if (!store.lent(i)) total += params[i].bytes;
  }
  store.params_ = std::move(params);
  ASSIGN_OR_RETURN(store.buffer_, pool.allocate(total, "weights"));
  return store;
}

void* ParamStore::data(const std::string& name) const {
  auto it = index_.find(name);
  CHECK(it != index_.end(), "parameter {}", name);
  return data(it->second);
}

void* ParamStore::lend(const ParamPlan& plan) const {
  const auto it = index_.find(plan.name);
  if (it == index_.end()) return nullptr;
  const ParamPlan& own = params_[it->second];
  const ParamLayout *a = own.layout, *b = plan.layout;
  // Each platform has its own registry of the same layouts.
  const bool alike = a && b ? a->name == b->name && a->device == b->device && a->pack == b->pack : a == b;
  return alike && same_type(own.type, plan.type) && own.bytes == plan.bytes ? data(it->second) : nullptr;
}

void ParamStore::pack_at(const ParamPlan& p, void* to, const void* rows, int64_t first, int64_t count) const {
  if (p.layout) {
    p.layout->pack(p.type, to, rows, first, count);
    return;
  }
  const int64_t width = p.type.shape.rank() == 1 ? 1 : p.type.shape.back().factor;
  const size_t row_bytes = static_cast<size_t>(width) * size_of(p.type.dtype);
  std::memcpy(static_cast<uint8_t*>(to) + row_bytes * static_cast<size_t>(first), rows,
              row_bytes * static_cast<size_t>(count));
}

Status ParamStore::pack_rows(size_t index, const void* rows, int64_t first, int64_t count) {
  const ParamPlan& p = params_[index];
  if (!transfer_) {
    pack_at(p, data(index), rows, first, count);
    return Status::ok();
  }
  return transfer_->pack(p, index, data(index), count, [&](void* image) { pack_at(p, image, rows, first, count); });
}

}  // namespace reprise
