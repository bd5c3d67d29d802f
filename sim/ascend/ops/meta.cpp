#include "ascend/ops/meta.h"

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "ascend/ops/executor.h"

namespace ascend_sim {

namespace {

// Handles by address, with the kind of object for the report of what was left alive.
struct Objects {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> kinds;
};

Objects& objects() {
  static Objects all;
  return all;
}

template <typename T>
T* created(T* object, const char* kind) {
  const std::lock_guard lock(objects().mutex);
  objects().kinds.emplace(object, kind);
  return object;
}

template <typename T>
aclnnStatus destroy(const T* object, const char* what) {
  if (object == nullptr) return fail(kNullPointer, std::string(what) + ": the handle is null");
  {
    const std::lock_guard lock(objects().mutex);
    if (objects().kinds.erase(object) == 0) {
      return fail(kInvalid, std::string(what) + ": this handle was never created or is destroyed already");
    }
  }
  delete object;
  return 0;
}

bool describe(View& view, const int64_t* dims, uint64_t rank, aclDataType dtype, const int64_t* strides, int64_t offset,
              aclFormat format, const int64_t* storage, uint64_t storage_rank, void* address) {
  if ((dims == nullptr && rank > 0) || (storage == nullptr && storage_rank > 0)) return false;
  view.given = true;
  view.dtype = dtype;
  view.format = format;
  view.shape.assign(dims, dims + rank);
  view.strides = strides ? Dims(strides, strides + rank) : packed_strides(view.shape);
  view.storage.assign(storage, storage + storage_rank);
  view.offset = offset;
  view.address = address;
  for (const int64_t size : view.shape) {
    if (size < 0) return false;
  }
  return true;
}

// The answers of aclGetViewShape and the like belong to the caller, who frees them with delete[].
aclnnStatus hand_out(const Dims& values, int64_t** data, uint64_t* size, const char* what) {
  if (data == nullptr || size == nullptr) return fail(kNullPointer, std::string(what) + ": an output is null");
  *size = values.size();
  *data = new int64_t[values.size() + 1]{};
  std::copy(values.begin(), values.end(), *data);
  return 0;
}

int dead(const void* object, const char* what) {
  if (object == nullptr) return fail(kNullPointer, std::string(what) + ": the handle is null");
  if (!live(object))
    return fail(kInvalid, std::string(what) + ": this handle was never created or is destroyed already");
  return 0;
}

}  // namespace

bool live(const void* object) {
  const std::lock_guard lock(objects().mutex);
  return objects().kinds.contains(object);
}

bool live(const aclTensor* tensor, uint64_t serial) {
  const std::lock_guard lock(objects().mutex);
  return objects().kinds.contains(tensor) && tensor->serial == serial;
}

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
  View view;
  if (!describe(view, viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum,
                tensorData)) {
    fail(kInvalid, "aclCreateTensor: dimensions must not be negative, nor their arrays null");
    return nullptr;
  }
  static std::atomic<uint64_t> created_so_far = 0;
  return created(new aclTensor{std::move(view), ++created_so_far}, "tensor");
}

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                          const int64_t* stride, int64_t offset, aclFormat format, const int64_t* storageDims,
                          uint64_t storageDimsNum, void* tensorDataAddr) {
  if (const int code = dead(tensor, "aclInitTensor")) return code;
  View view;
  if (!describe(view, viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum,
                tensorDataAddr)) {
    return fail(kInvalid, "aclInitTensor: dimensions must not be negative, nor their arrays null");
  }
  tensor->view = std::move(view);
  return 0;
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  if (value == nullptr || size_of(dataType) == 0) {
    fail(value ? kInvalid : kNullPointer, "aclCreateScalar: needs a value and a data type that has numbers");
    return nullptr;
  }
  auto* scalar = new aclScalar{dataType, 0, 0};
  read_run(dataType, value, 1, 1, &scalar->number);
  read_run(dataType, value, 1, 1, &scalar->whole);
  return created(scalar, "scalar");
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  return created(new aclIntArray{std::vector<int64_t>(value, value + size)}, "int array");
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  return created(new aclFloatArray{std::vector<float>(value, value + size)}, "float array");
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  return created(new aclBoolArray{std::vector<char>(value, value + size)}, "bool array");
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  auto* list = new aclTensorList;
  for (uint64_t i = 0; i < size; ++i) list->tensors.push_back(const_cast<aclTensor*>(value[i]));
  return created(list, "tensor list");
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  if (value == nullptr && size > 0) return nullptr;
  auto* list = new aclScalarList;
  for (uint64_t i = 0; i < size; ++i) list->scalars.push_back(const_cast<aclScalar*>(value[i]));
  return created(list, "scalar list");
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) { return destroy(tensor, "aclDestroyTensor"); }
aclnnStatus aclDestroyScalar(const aclScalar* scalar) { return destroy(scalar, "aclDestroyScalar"); }
aclnnStatus aclDestroyIntArray(const aclIntArray* array) { return destroy(array, "aclDestroyIntArray"); }
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) { return destroy(array, "aclDestroyFloatArray"); }
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) { return destroy(array, "aclDestroyBoolArray"); }

// A list owns its members from its creation on.
aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  if (const int code = dead(array, "aclDestroyTensorList")) return code;
  for (const aclTensor* tensor : array->tensors) {
    if (tensor == nullptr) continue;
    if (const int code = destroy(tensor, "aclDestroyTensorList (a member)")) return code;
  }
  return destroy(array, "aclDestroyTensorList");
}

aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  if (const int code = dead(array, "aclDestroyScalarList")) return code;
  for (const aclScalar* scalar : array->scalars) {
    if (scalar == nullptr) continue;
    if (const int code = destroy(scalar, "aclDestroyScalarList (a member)")) return code;
  }
  return destroy(array, "aclDestroyScalarList");
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  if (const int code = dead(tensor, "aclGetViewShape")) return code;
  return hand_out(tensor->view.shape, viewDims, viewDimsNum, "aclGetViewShape");
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims, uint64_t* storageDimsNum) {
  if (const int code = dead(tensor, "aclGetStorageShape")) return code;
  return hand_out(tensor->view.storage, storageDims, storageDimsNum, "aclGetStorageShape");
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue, uint64_t* stridesNum) {
  if (const int code = dead(tensor, "aclGetViewStrides")) return code;
  return hand_out(tensor->view.strides, stridesValue, stridesNum, "aclGetViewStrides");
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  if (const int code = dead(tensor, "aclGetViewOffset")) return code;
  if (offset == nullptr) return fail(kNullPointer, "aclGetViewOffset: the output is null");
  *offset = tensor->view.offset;
  return 0;
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  if (const int code = dead(tensor, "aclGetFormat")) return code;
  if (format == nullptr) return fail(kNullPointer, "aclGetFormat: the output is null");
  *format = tensor->view.format;
  return 0;
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  if (const int code = dead(tensor, "aclGetDataType")) return code;
  if (dataType == nullptr) return fail(kNullPointer, "aclGetDataType: the output is null");
  *dataType = tensor->view.dtype;
  return 0;
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  if (const int code = dead(array, "aclGetIntArraySize")) return code;
  if (size == nullptr) return fail(kNullPointer, "aclGetIntArraySize: the output is null");
  *size = array->values.size();
  return 0;
}

aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  if (const int code = dead(tensorList, "aclGetTensorListSize")) return code;
  if (size == nullptr) return fail(kNullPointer, "aclGetTensorListSize: the output is null");
  *size = tensorList->tensors.size();
  return 0;
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  if (const int code = dead(tensor, "aclSetRawTensorAddr")) return code;
  tensor->view.address = addr;
  return 0;
}

aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  if (const int code = dead(tensor, "aclGetRawTensorAddr")) return code;
  if (addr == nullptr) return fail(kNullPointer, "aclGetRawTensorAddr: the output is null");
  *addr = tensor->view.address;
  return 0;
}

aclnnStatus aclnnInit(const char* configPath) { return 0; }

aclnnStatus aclnnFinalize() {
  forget_phase1();
  return 0;
}

int64_t ascendSimLiveObjects(char* text, size_t size) {
  std::map<std::string, int64_t> counts = live_executors();
  {
    const std::lock_guard lock(objects().mutex);
    for (const auto& entry : objects().kinds) ++counts[entry.second];
  }
  int64_t total = 0;
  std::string lines;
  for (const auto& entry : counts) {
    total += entry.second;
    lines += std::to_string(entry.second) + " x " + entry.first + "\n";
  }
  if (text != nullptr && size > 0) std::snprintf(text, size, "%s", lines.c_str());
  return total;
}

}  // extern "C"
