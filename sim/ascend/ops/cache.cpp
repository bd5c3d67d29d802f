// Writing rows to the places that indices name: the paged cache, and scattering in general.
#include <algorithm>
#include <cstring>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

enum class Pool : uint8_t { Rows, HeadMajor, Fractal };

// Where element `at` of head `head` of a slot lies in a cache, in elements.
int64_t place(const View& cache, Pool pool, int64_t slot, int64_t head, int64_t at, int64_t heads, int64_t width) {
  if (pool == Pool::Rows) return (slot * heads + head) * width + at;
  if (pool == Pool::HeadMajor) {
    const int64_t block = cache.dim(2);
    return ((slot / block * heads + head) * block + slot % block) * width + at;
  }
  const int64_t block = cache.dim(2), lane = cache.dim(3), column = head * width + at;
  return ((slot / block * cache.dim(1) + column / lane) * block + slot % block) * lane + column % lane;
}

void check_slots(const std::vector<int64_t>& slots) {
  std::vector<int64_t> sorted = slots;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end() && holds(Rule::CacheSlotTwice, machine().cann))
    throw DeviceFault("aclnnScatterPaKvCache: " + refusal(Rule::CacheSlotTwice, "slot " + std::to_string(*twice)));
}

// Where the rows of keys or values begin, in elements from the first of their tensor.
struct Rows {
  int64_t stride = 0, offset = 0;
  int64_t reach(const View& rows) const { return offset + (rows.dim(0) - 1) * stride + rows.dim(1) * rows.dim(2); }
};

void scatter_rows(const View& rows, Rows lie, const View& cache, Pool pool, const std::vector<int64_t>& slots) {
  const int64_t heads = rows.dim(1), width = rows.dim(2), element = rows.element();
  const int64_t run = pool == Pool::Fractal ? cache.dim(3) : width;
  const int64_t all = cache.dim(0) * cache.dim(pool == Pool::Rows ? 1 : 2);
  const char* first = at<const char>(rows) + lie.offset * element;
  char* to = at<char>(cache);
  for (size_t token = 0; token < slots.size(); ++token) {
    const int64_t slot = slots[token];
    const char* from = first + static_cast<int64_t>(token) * lie.stride * element;
    if (slot < 0 || slot >= all) {
      throw DeviceFault("aclnnScatterPaKvCache: slot " + std::to_string(slot) + " is none of the " +
                        std::to_string(all) + " of the cache");
    }
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < width; i += run) {
        std::memcpy(to + place(cache, pool, slot, head, i, heads, width) * element, from,
                    static_cast<size_t>(run * element));
        from += run * element;
      }
    }
  }
}

// Shape of a cache that takes rows of [tokens, heads, width].
void check_cache(Operator& op, Slot rows, Slot cache, Pool pool, const std::string& name) {
  const int64_t heads = op[rows].dim(1), width = op[rows].dim(2);
  if (!op.tiled(op[cache].rank() == 4, name + " has shape " + text_of(op[cache].shape) + "; it needs 4 dimensions"))
    return;
  Dims expected = op[cache].shape;
  if (pool == Pool::Rows) {
    expected[2] = heads, expected[3] = width;
  } else if (pool == Pool::HeadMajor) {
    expected[1] = heads, expected[3] = width;
  } else {
    const int64_t lane = 32 / op[rows].element();
    op.tiled(width % lane == 0, "PA_NZ needs heads of a multiple of 32 bytes");
    expected[1] = heads * width / lane, expected[3] = lane;
  }
  op.tiled(op[cache].shape == expected,
           name + " has shape " + text_of(op[cache].shape) + "; these rows need " + text_of(expected));
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnScatterPaKvCacheGetWorkspaceSize(Tensor key, TensorRef keyCacheRef, Tensor slotMapping, Tensor value,
                                                  TensorRef valueCacheRef, Tensor compressLensOptional,
                                                  Tensor compressSeqOffsetOptional, Tensor seqLensOptional,
                                                  char* cacheModeOptional, char* scatterModeOptional,
                                                  Ints stridesOptional, Ints offsetsOptional, uint64_t* workspaceSize,
                                                  aclOpExecutor** executor) {
  Operator op("aclnnScatterPaKvCache", workspaceSize, executor, Since::Cann85);
  const Slot k = op.in("key", key), k_cache = op.ref("keyCacheRef", keyCacheRef),
             slots = op.in("slotMapping", slotMapping);
  // The tiling takes a value cache that is stored without dimensions for none; it reads that of a null as well.
  const auto none = [](Tensor tensor) { return tensor != nullptr && live(tensor) && tensor->view.rank() == 0; };
  op.obeys(Rule::CacheValueNull, value != nullptr && valueCacheRef != nullptr,
           value == nullptr ? "value is null" : "valueCacheRef is null");
  op.obeys(Rule::CacheValueNull, !none(valueCacheRef) || valueCacheRef->view.storage.empty(),
           "valueCacheRef has no dimensions, its storage has some");
  const bool values = !none(valueCacheRef);
  const Slot v_in = values ? op.in("value", value) : op.maybe_in("value", nullptr);
  const Slot v_cache = values ? op.ref("valueCacheRef", valueCacheRef) : op.maybe_in("valueCacheRef", nullptr);
  op.absent("compressLensOptional", compressLensOptional);
  op.absent("compressSeqOffsetOptional", compressSeqOffsetOptional);
  op.absent("seqLensOptional", seqLensOptional);
  const std::string mode = op.text(cacheModeOptional), scatter = op.text(scatterModeOptional);
  const Dims strides = op.ints("stridesOptional", stridesOptional, false);
  const Dims offsets = op.ints("offsetsOptional", offsetsOptional, false);
  if (!op.ok()) return op.status();
  op.tiled(mode.empty() || mode == "Norm" || mode == "PA_NZ", "cacheMode \"" + mode + "\" may be Norm or PA_NZ");
  const bool apart = scatter == "Nct";
  op.tiled(scatter.empty() || scatter == "None" || (scatter == "NHSD" && mode == "Norm") || (apart && mode != "PA_NZ"),
           "scatterMode \"" + scatter + "\" may be None, or NHSD or Nct where cacheMode is Norm");
  op.obeys(Rule::CacheStrides, !apart || (strides.size() >= 2 && offsets.size() >= 2),
           text_of(strides) + " and " + text_of(offsets));
  op.dtype(k, {kHalf, kBf16, kInt8});
  op.same_dtype(k_cache, k);
  op.dtype(slots, {kInt32, kInt64});
  if (!op.ok()) return op.status();
  op.tiled(op[k].rank() == 3, "key has shape " + text_of(op[k].shape) + "; it needs [tokens, heads, head size]");
  op.tiled(op[slots].shape == Dims{op[k].dim(0)}, "slotMapping needs one slot per token");
  op.tiled(values || (mode != "PA_NZ" && scatter != "NHSD"),
           "without values cacheMode may be Norm and scatterMode None or Nct");
  const Pool pool = mode == "PA_NZ" ? Pool::Fractal : scatter == "NHSD" ? Pool::HeadMajor : Pool::Rows;
  check_cache(op, k, k_cache, pool, "keyCacheRef");
  if (values) {
    op.same_dtype(v_in, k);
    op.same_dtype(v_cache, k);
    op.tiled(op[v_in].rank() == 3 && op[v_in].dim(0) == op[k].dim(0) && op[v_in].dim(1) == op[k].dim(1),
             "value has shape " + text_of(op[v_in].shape) + "; only its head size may differ from key's");
    check_cache(op, v_in, v_cache, pool, "valueCacheRef");
  }
  // In every other mode the numbers are not looked at.
  const auto rows_of = [&](Slot rows, size_t i) {
    return apart ? Rows{strides[i], offsets[i]} : Rows{op[rows].dim(1) * op[rows].dim(2), 0};
  };
  if (!op.ok()) return op.status();
  const Rows keys_lie = rows_of(k, 0), values_lie = values ? rows_of(v_in, 1) : Rows{};
  op.reach(k, keys_lie.reach(op[k]));
  if (values) op.reach(v_in, values_lie.reach(op[v_in]));
  const double bytes = 2 * (op[k].bytes() + (values ? op[v_in].bytes() : 0)) + op[slots].bytes();
  op.never_kept(Rule::CacheNotRepeated);
  return op.finish(
      Unit::Vector, 0,
      [=](const Operands& v) {
        const std::vector<int64_t> where = read<int64_t>(v[slots]);
        check_slots(where);
        scatter_rows(v[k], keys_lie, v[k_cache], pool, where);
        if (values) scatter_rows(v[v_in], values_lie, v[v_cache], pool, where);
      },
      bytes);
}
ACLNN_PHASE2(aclnnScatterPaKvCache);

aclnnStatus aclnnScatterNdUpdateGetWorkspaceSize(TensorRef varRef, Tensor indices, Tensor updates,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnScatterNdUpdate", workspaceSize, executor);
  const Slot var = op.ref("varRef", varRef), index = op.in("indices", indices), rows = op.in("updates", updates);
  if (!op.ok()) return op.status();
  op.dtype(index, {kInt32, kInt64});
  op.same_dtype(rows, var);
  const int64_t depth = op[index].dim(-1);
  if (!op.valid(op[index].rank() >= 1 && depth <= op[var].rank(),
                "indices " + text_of(op[index].shape) + " name more dimensions than varRef has")) {
    return op.status();
  }
  Dims expected(op[index].shape.begin(), op[index].shape.end() - 1);
  expected.insert(expected.end(), op[var].shape.begin() + depth, op[var].shape.end());
  op.shape(rows, expected);
  const double bytes = 2 * op[rows].bytes() + op[index].bytes();
  return op.finish(
      Unit::Vector, 0,
      [=](const Operands& v) {
        const std::vector<int64_t> places = read<int64_t>(v[index]);
        const int64_t run = product(v[var].shape, static_cast<size_t>(depth)) * v[var].element();
        const char* from = at<const char>(v[rows]);
        char* to = at<char>(v[var]);
        for (size_t i = 0; depth > 0 && i < places.size(); i += static_cast<size_t>(depth), from += run) {
          int64_t row = 0;
          for (int64_t d = 0; d < depth; ++d) {
            const int64_t at_index = places[i + static_cast<size_t>(d)], size = v[var].dim(d);
            if (at_index < 0 || at_index >= size) {
              throw DeviceFault("aclnnScatterNdUpdate: index " + std::to_string(at_index) + " is none of the " +
                                std::to_string(size) + " of its dimension");
            }
            row = row * size + at_index;
          }
          std::memcpy(to + row * run, from, static_cast<size_t>(run));
        }
      },
      bytes);
}
ACLNN_PHASE2(aclnnScatterNdUpdate);

}  // extern "C"
