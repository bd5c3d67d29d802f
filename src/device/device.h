// Device: one accelerator (or the CPU, which is a device like the others).
//
// A Device makes streams and pools and says what it is. It owns its threads or driver context and must outlive what it
// made. Everything above `backends` sees devices only through this interface.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "device/graph.h"
#include "device/memory.h"
#include "device/product_ways.h"
#include "device/stream.h"

namespace reprise {

enum class DeviceKind : uint8_t { Cpu, Cuda, Ascend, Null };

std::string_view device_kind_name(DeviceKind kind);
Result<DeviceKind> parse_device_kind(std::string_view name);  // "npu" is "ascend"

// What decides which weights are read ahead while device memory idles (passes/insert_prefetch.cpp). Times are
// microseconds at one row, of a model or a data sheet.
struct ReadAhead {
  std::string refusal = "nothing is known of its cache";  // why not at all; empty: it can
  double bytes_per_us = 0;                                // from memory into the cache
  double cached_bytes_per_us = 0;                         // that a product reads of what is there
  double launch_us = 0;      // in which a launch that multiplies by no weights leaves memory idle, at least
  double collective_us = 0;  // likewise a collective
  double delay_us = 0;       // from the end of a launch to the first byte on another stream
  double mark_us = 0;        // that the main stream loses where another one starts behind it
  size_t cache_bytes = 0;
};

struct DeviceInfo {
  DeviceKind kind = DeviceKind::Null;
  std::string name;         // for people: "Intel Xeon (2 threads, avx512)"
  std::string isa;          // instruction set or architecture the kernels were chosen for
  std::string order;        // name of the order in which its kernels add up (backends/sum_order.h); empty: it has none
  int threads = 1;          // that share a kernel's work
  size_t memory_bytes = 0;  // total memory the device may use
  size_t free_bytes = 0;    // of it when it was opened, which other processes may share; 0: not told
  // What the device can do; tests/device/ holds it to every line.
  bool host_visible = true;   // the host may read and write device memory directly
  bool live_sizes = false;    // kernels read sizes at run time: one captured graph serves every size up to its bounds
  bool asynchronous = false;  // work runs behind the host; what it wrote is there after synchronize()
  bool captures = true;       // capture() works
  bool patches = true;        // launch_patchable() works
  bool computes = true;       // kernels compute; false: only their times are of interest, and results mean nothing
  // False: a patchable launch takes room on the device, so only those that need it at every replay are recorded so, and
  // graphs are recorded anew when addresses move.
  bool free_patches = true;
  // What graphs take (GraphStats::bytes) is memory of the device, which weights and caches could have.
  bool graphs_take_memory = false;
  // Launches may be recorded that never ran: nothing is loaded, chosen or allocated at a first run.
  bool records_cold = false;
  DType index_dtype = DType::I32;  // of token ids, positions, slots and tables, as its kernels take them
  // Kernels leave out rows whose cache slot is negative. False: every slot they are given must exist, and no two rows
  // of a step may have the same; padding rows then write into scratch pages.
  bool skips_negative_slots = true;
  // A token's row has the same bits alone and in a step with others of its sequence. False: one row and several are
  // attended by kernels whose sums may differ.
  bool row_invariant = true;
  bool bf16_dots = false;  // products of bf16 with packed weights are faster there than those of fp32
  // Products of GGUF blocks with activations that are rounded to int8 are faster than those with floats, at every
  // number of rows where one of them is.
  bool int8_blocks = false;
  ReadAhead read_ahead;
  std::vector<std::string> notes;  // for people: versions, what is missing, what is a model of the real thing
};

// One thing that a kind of device must do for its backend alone. Code::Unsupported: not tried, with the reason.
struct OwnCheck {
  std::string name;
  Status result;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual MemoryPool& pool() = 0;
  // Memory for what ranks exchange and for staged inputs. Ranks that allocate the same in the same order have it at the
  // same offsets of one place, where they share memory; the first rank fills it with zeros.
  virtual MemoryPool& shared_pool() { return pool(); }
  // Host memory by which the front hands the staged inputs to other ranks, whose devices read no memory of its own; in
  // the same order on all, as above. Null: shared_pool() is seen by all ranks, or there is one.
  virtual MemoryPool* between_ranks() { return nullptr; }
  // Host memory that the device copies from and to without a detour. Where the host sees device memory they are one.
  virtual MemoryPool& host_pool() { return pool(); }
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual Result<std::unique_ptr<Event>> make_event() = 0;
  // Records what `body` launches, without running it, at the live sizes of `stream`. The stream is idle, and the body
  // leaves it alone. An error of the body is the capture's error and leaves nothing behind: the stream goes on as
  // before.
  virtual Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream,
                                                       const std::function<Status(Recorder&)>& body) = 0;
  // What the backend takes for granted of this device, tried now; for `reprise doctor`.
  virtual std::vector<OwnCheck> own_checks() { return {}; }
  // Where products may be left to a vendor's library: what was found out about them. Null: own kernels alone.
  virtual ProductWays* product_ways() { return nullptr; }
  // Microseconds of the device's own clock where its time is modelled; none where real time counts. It has passed the
  // work that the calling thread has waited for.
  virtual std::optional<double> clock_us() const { return std::nullopt; }
  // Microseconds of the device's own clock from one mark to a later one, both passed; none where marks carry no time.
  virtual std::optional<double> between_us(const Event& from, const Event& to) const { return std::nullopt; }
  // What the modelled time rests on, in lines; empty where there is none.
  virtual std::string clock_note() const { return {}; }
};

// The time that steps on the device take is the difference of two of these: its own clock's, or the steady clock's.
double now_us(const Device& device);

}  // namespace reprise
