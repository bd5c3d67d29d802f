// Context: what the device and its kernels share: the library, its operators, the chip, and constants in device memory.
//
// Made with the device and kept alive by the kernels' entries. Constants are made once, when a kernel is bound.
// One thread at a time makes constants; everything else is read-only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/ascend/communicator.h"
#include "backends/ascend/operators.h"

namespace reprise::ascend {

class Context {
 public:
  // The device's number among those that the process sees.
  Context(std::shared_ptr<const Library> library, bool fused_attention, int device = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Library& library() const { return *library_; }
  const Operators& operators() const { return operators_; }
  const std::string& soc() const { return soc_; }
  // ASCEND_USE_FIA: one operator for prompts and steps, or the pair before it.
  bool fused_attention() const { return fused_attention_; }

  // Makes the runtime know the calling thread; every call into the runtime comes after it.
  Status attach() const;

  // Once, before any kernel is bound: meets the other ranks. Afterwards communicator() is theirs.
  Status join(std::shared_ptr<ranks::Member> member, bool for_experts = false);
  const Communicator* communicator() const { return communicator_.get(); }

  // `bytes` of device memory whose content `fill` writes on the host; made on the first call with this key. Null when
  // it cannot be made, which is not tried again; take_constant_error() says why, once for each call.
  void* constant(const std::string& key, size_t bytes, const std::function<void(void*)>& fill);
  Status take_constant_error();
  // 0, 1, 2, ...; ones; the upper triangle (1 = masked) that causal attention takes. kRows numbers each.
  static constexpr int64_t kRows = 131072;
  static constexpr int64_t kMask = 2048;
  void* row_numbers();  // i64
  void* ones();         // f32
  void* causal_mask();  // u8 [kMask, kMask]

 private:
  // What it could take is in `device`, also after an error.
  Status make_constant(size_t bytes, const std::function<void(void*)>& fill, void*& device) const;

  std::shared_ptr<const Library> library_;
  Operators operators_;
  std::string soc_;
  bool fused_attention_;
  int device_;
  std::unique_ptr<Communicator> communicator_;  // null: of one rank
  std::mutex mutex_;
  std::map<std::string, void*> constants_;
  std::map<std::string, Status> failed_;
  Status constant_error_ = Status::ok();
};

}  // namespace reprise::ascend
