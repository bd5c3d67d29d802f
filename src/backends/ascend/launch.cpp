#include "backends/ascend/launch.h"

#include <algorithm>

#include "base/log.h"

namespace reprise::ascend {
namespace {

constexpr size_t kAlignment = 512;  // of pieces of the workspace

size_t round_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

AclType acl_type(DType t) {
  switch (t) {
    case DType::F32: return ACL_FLOAT;
    case DType::F16: return ACL_FLOAT16;
    case DType::BF16: return ACL_BF16;
    case DType::I8: return ACL_INT8;
    case DType::U8: return ACL_UINT8;
    case DType::I32: return ACL_INT32;
    case DType::I64: return ACL_INT64;
    case DType::Bool: return ACL_BOOL;
    case DType::F64: return ACL_DOUBLE;
    case DType::I16: return ACL_INT16;
  }
  return ACL_FLOAT;
}

void LaunchObjects::destroy(const Library& library) {
  for (aclTensorList* l : lists) (void)library.aclDestroyTensorList(l);
  for (aclTensor* t : tensors) (void)library.aclDestroyTensor(t);
  for (aclScalar* s : scalars) (void)library.aclDestroyScalar(s);
  for (aclIntArray* a : arrays) (void)library.aclDestroyIntArray(a);
  *this = {};
}

Launch::~Launch() { objects_.destroy(library_); }

aclTensor* Launch::make(const void* data, AclType type, Sizes sizes, Sizes strides, int64_t offset, int64_t storage) {
  std::array<int64_t, 8> dense{};
  CHECK(sizes.size() <= dense.size(), "a tensor of {} dimensions", sizes.size());
  int64_t elements = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    dense[i] = elements;
    elements *= sizes.begin()[i];
  }
  if (storage == 0) storage = elements;
  // A probe's operands lie nowhere, but not at null.
  void* at = address(data);
  aclTensor* t =
      library_.aclCreateTensor(sizes.begin(), sizes.size(), type, strides.size() ? strides.begin() : dense.data(),
                               offset, ACL_FORMAT_ND, &storage, 1, at);
  objects_.tensors.push_back(t);
  return t;
}

aclTensor* Launch::fractal(const void* data, DType type, Sizes sizes, Sizes storage) {
  void* at = address(data);
  std::array<int64_t, 5> strides{1, 1, 1, 1, 1};
  CHECK(sizes.size() >= 2 && sizes.size() <= strides.size(), "matrices of {} dimensions", sizes.size());
  for (size_t i = sizes.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * sizes.begin()[i + 1];
  objects_.tensors.push_back(library_.aclCreateTensor(sizes.begin(), sizes.size(), acl_type(type), strides.data(), 0,
                                                      ACL_FORMAT_FRACTAL_NZ, storage.begin(), storage.size(), at));
  return objects_.tensors.back();
}

aclTensor* Launch::none(const void* data, DType type) {
  void* at = address(data);
  objects_.tensors.push_back(
      library_.aclCreateTensor(nullptr, 0, acl_type(type), nullptr, 0, ACL_FORMAT_ND, nullptr, 0, at));
  return objects_.tensors.back();
}

aclTensorList* Launch::list(aclTensor* only) {
  aclTensorList* l = library_.aclCreateTensorList(&only, 1);
  std::erase(objects_.tensors, only);
  objects_.lists.push_back(l);
  return l;
}

aclScalar* Launch::number(float value) {
  objects_.scalars.push_back(library_.aclCreateScalar(&value, ACL_FLOAT));
  return objects_.scalars.back();
}

aclScalar* Launch::whole(int64_t value) {
  objects_.scalars.push_back(library_.aclCreateScalar(&value, ACL_INT64));
  return objects_.scalars.back();
}

aclIntArray* Launch::integers(std::span<const int64_t> values) {
  objects_.arrays.push_back(library_.aclCreateIntArray(values.data(), values.size()));
  return objects_.arrays.back();
}

void* Launch::scratch(size_t bytes) {
  uint8_t* at = static_cast<uint8_t*>(workspace_) + scratch_;
  scratch_ += round_up(bytes);
  return at;
}

Status Launch::missing(const char* name) { return error(Code::Unsupported, "the installed CANN has no {}", name); }

// Pieces between operators lie first and all operators share what follows: they run one after the other.
Status Launch::room(const char* name, size_t bytes, aclOpExecutor* executor) {
  spared_ = nullptr;
  if (scratch_ + round_up(bytes) <= bytes_) {
    operators_bytes_ = std::max(operators_bytes_, round_up(bytes));
    return Status::ok();
  }
  // Pieces were handed out already; only an operator's own workspace can lie elsewhere.
  if (spare_ && scratch_ <= bytes_) {
    Result<void*> spared = spare_->at_least(round_up(bytes), name);
    if (spared.is_ok()) {
      spared_ = *spared;
      return Status::ok();
    }
    (void)library_.aclDestroyAclOpExecutor(executor);
    return spared.status();
  }
  (void)library_.aclDestroyAclOpExecutor(executor);
  return error(Code::Internal, "{} asks for {} bytes of workspace, {} were planned", name, scratch_ + round_up(bytes),
               bytes_);
}

SpareWorkspace::~SpareWorkspace() {
  for (void* block : blocks_) (void)library_.aclrtFree(block);
}

Result<void*> SpareWorkspace::at_least(size_t bytes, const char* why) {
  if (bytes <= size_) return blocks_.back();
  // At least twice the last one, so that all blocks together are no larger than the next one would be.
  const size_t size = std::max(bytes, 2 * size_);
  void* block = nullptr;
  RETURN_IF_ERROR(library_.check(library_.aclrtMalloc(&block, size, ACL_MEM_MALLOC_HUGE_FIRST),
                                 fmt::format("{}: {} bytes of workspace beside what was planned", why, size)));
  log::notice("ascend: {} asks for more workspace than was planned; {} bytes are taken beside it", why, size);
  blocks_.push_back(block);
  size_ = size;
  return block;
}

void Launch::keep(const KeptOperator& op) {
  if (library_.aclSetAclOpExecutorRepeatable(op.executor) == 0) kept_->push_back(op);
}

Status run_thunk(const Thunk& thunk, const LiveSizes& live, Launch& launch) {
  for (OpaqueKernel part : thunk.part)
    if (part) RETURN_IF_ERROR(reinterpret_cast<AscendKernel>(part)(thunk.args, live, launch));
  return Status::ok();
}

}  // namespace reprise::ascend
