#include "compile/param_store.h"

#include <cstring>

namespace reprise {

Result<ParamStore> ParamStore::create(std::vector<ParamPlan> params, MemoryPool& pool) {
  ParamStore store;
  constexpr size_t kAlign = 4096;  // big parameters begin on a page of their own
  size_t total = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const size_t align = params[i].bytes >= kAlign ? kAlign : 64;
    total = (total + align - 1) / align * align;
    store.offsets_.push_back(total);
    store.index_[params[i].name] = i;
    total += params[i].bytes;
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

void ParamStore::pack_rows(size_t index, const void* rows, int64_t first, int64_t count) {
  const ParamPlan& p = params_[index];
  if (p.layout) {
    p.layout->pack(p.type, data(index), rows, first, count);
    return;
  }
  const int64_t width = p.type.shape.rank() == 1 ? 1 : p.type.shape.back().factor;
  const size_t row_bytes = static_cast<size_t>(width) * size_of(p.type.dtype);
  std::memcpy(static_cast<uint8_t*>(data(index)) + row_bytes * static_cast<size_t>(first), rows,
              row_bytes * static_cast<size_t>(count));
}

}  // namespace reprise
