// AdapterTable: LoRA adapters by the names that requests choose them by, on the slots of one engine.
//
// An adapter is used for as long as an AdapterPtr of it lives: calls and requests hold one. remove() takes the name
// away at once, and the slot is written again when nothing holds the adapter any more. Names are asked for by any
// thread; slots are written by the thread that drives the engine, between steps (insert). The table outlives the
// requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/adapter_slots.h"

namespace reprise::sched {

struct Adapter {
  std::string name, path, base_model;  // the base as the adapter's configuration names it
  int32_t slot = 0;
  uint64_t serial = 0;  // of all that were ever loaded: what was computed with one is no other's
  int64_t rank = 0;
  int64_t created = 0;                        // seconds since 1970
  mutable std::atomic<uint64_t> requests{0};  // that chose it
};
using AdapterPtr = std::shared_ptr<const Adapter>;

// "name=path", as the setting lora_modules has it; also a path alone, whose name is the path (SGLang's form), and
// vLLM's object {"name", "path", "base_model_name"}.
struct AdapterPlace {
  std::string name, path;
};
Result<AdapterPlace> parse_adapter_place(std::string_view text);

class AdapterTable {
 public:
  explicit AdapterTable(engine::AdapterSlots& slots) : slots_(slots) {}

  int64_t slots() const { return slots_.slots(); }  // 0: the engine takes no adapters
  AdapterPtr find(std::string_view name) const;     // null: there is none
  std::vector<AdapterPtr> list() const;             // by name

  // Reads and converts the folder's adapter; any thread.
  Result<engine::PreparedAdapter> read(const AdapterPlace& place) const;
  // The engine's thread. Busy: no slot is free, and why.
  Result<AdapterPtr> insert(const AdapterPlace& place, const engine::PreparedAdapter& adapter);
  // read() and insert(), where the engine's thread has nothing else to do.
  Result<AdapterPtr> load(const AdapterPlace& place);
  // Any thread. How many requests and calls still use it, or NotFound with the names that there are.
  Result<int64_t> remove(std::string_view name);

 private:
  Status check_free(const std::string& name) const;  // with the mutex
  Status free_retired();                             // likewise

  engine::AdapterSlots& slots_;
  mutable std::mutex mutex_;  // of what follows
  std::map<std::string, AdapterPtr, std::less<>> by_name_;
  std::vector<AdapterPtr> retired_;
  uint64_t last_serial_ = 0;
};

// The salt of the prefix cache, and of what drafts learn from, for a request with this salt of its own and adapter:
// different for all pairs of them.
std::string salt_with(const AdapterPtr& adapter, std::string_view salt);

}  // namespace reprise::sched
