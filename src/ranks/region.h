// Region: memory that the ranks of one host share: a page of control, then the arena of what they exchange.
//
// It is an anonymous file (memfd): no name, no port, and nothing is left behind when the last process ends. The host's
// leader creates it and hands the descriptor on; every rank maps it, at an address of its own. What lies in the arena
// is found by its offset, which is the same on all ranks as long as they allocate the same things in the same order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dim.h"
#include "base/status.h"
#include "ranks/world.h"

namespace reprise::ranks {

// What a follower does next. A fixed struct: nothing in it is a length that is believed.
struct StepMessage {
  // Check, Compare, Retire: parts of --verify-replay (engine/engine_check.cpp).
  // Await: nothing is published; see Member::want(). Load: a LoRA adapter, whose folder is the front's next card.
  enum class Kind : uint8_t {
    Step,
    CopyPage,
    Resize,
    Check,
    Compare,
    Retire,
    Load,
    Unload,
    Await,
    Stop
  } kind = Kind::Stop;
  uint8_t phase = 0;   // Step: which phase's program (index of engine::kPhases) ...
  uint8_t plan = 0;    // ... how it runs (engine::StepPlan::Kind) ...
  uint8_t output = 0;  // ... and which heads (engine::StepOutput)
  uint8_t beside = 0;  // Step: 1: it is in the device's queue when a rank has done it, behind the one before ...
  uint8_t slot = 0;    // ... and its inputs stay in this slot of the staging
  uint8_t draft = 0;   // 1: for the engine that drafts for the model, not for the model's
  // Step: the captured size. Resize: pages of the cache. Load, Unload: an adapter's slot. Await: a message's number.
  int64_t size = 0;
  int64_t from = 0, to = 0;  // CopyPage ...
  int64_t part = 0;          // ... on the ranks of this part of the world
  uint8_t unfused = 0;       // Check: which program runs. Retire: all run unfused from now on
  uint8_t keep = 0;          // Check: what of the run is kept (engine::CheckRun::Keep)
  uint8_t flips = 0;         // Step: 1: a bit of the result of launch `node` turns; 2: a hang; on `rank` or all (-1)
  int32_t rank = -1;
  int64_t node = -1;  // -1: the last launch
  LiveSizes live{};
  uint64_t staged_at = 0, staged_bytes = 0;  // what other hosts need of the arena first: the step's inputs
};

class Region;

// What a rank has written of a collective's result, for hosts that do not see its memory: a rectangle of bytes, or
// whole rows of its own (Region::marks).
struct Part {
  uint64_t at = 0;                      // of the result, in the arena
  uint64_t of = 0;                      // bytes of a row
  uint64_t row_begin = 0, row_end = 0;  // rows ...
  uint64_t first = 0, width = 0;        // ... and bytes of each
  uint64_t owned = 0;                   // 1: of these rows those that carry the rank's mark, whole

  bool fits(const Region& region) const;
};

// The page of control. Lines that several ranks spin on lie apart.
struct Control {
  static constexpr uint64_t kMagic = 0x52505253'52414e4bu;
  static constexpr uint32_t kProtocol = 6;
  static constexpr size_t kCardBytes = size_t{8} << 10;
  static constexpr size_t kReasonBytes = 480;

  struct alignas(64) Line {
    std::atomic<uint64_t> epoch{0};      // meetings arrived at
    std::atomic<uint64_t> done{0};       // steps done
    std::atomic<uint64_t> cards{0};      // cards shown and read
    std::atomic<uint64_t> waited_ns{0};  // in meetings, for ranks that came later
    // By the lowest bit of the epoch: a rank may be at the next meeting while its host still sends what it wrote for
    // the one before.
    alignas(64) Part part[2];
  };
  struct Card {
    uint32_t bytes = 0;
    char text[kCardBytes - sizeof(uint32_t)];
  };

  uint64_t magic = 0;
  uint32_t protocol = 0;
  int32_t size = 0;
  int32_t processors = 0;  // that the ranks of the host may use together
  bool bound = false;      // a launcher has given each of them its own
  uint64_t arena_bytes = 0;
  alignas(64) std::atomic<uint32_t> aborted{0};  // 1: a process writes the reason; 2: it is there
  char reason[kReasonBytes];
  alignas(64) std::atomic<uint64_t> step{0};  // messages published
  std::atomic<uint64_t> wanted{0};            // of which message the front waits for the results ...
  std::atomic<uint64_t> given{0};             // ... and of which it has had them last
  std::atomic<uint32_t> bell{0};              // futex word of ranks that wait for one
  alignas(64) StepMessage message;
  Line line[kMaxRanks];
  Card card[kMaxRanks];

  // Ends the world: every wait ends with the reason. The first one counts. Any thread of any process.
  void abort(std::string_view why);
  std::string reason_text() const;  // "" before an abort
  void ring();                      // wakes those who wait for a message
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

class Region {
 public:
  // A new one for so many ranks. Memory is taken when it is touched.
  static Result<std::unique_ptr<Region>> create(int ranks);
  // The one behind a descriptor, which stays the caller's.
  static Result<std::unique_ptr<Region>> open(int descriptor);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int descriptor() const { return descriptor_; }
  Control& control() const { return *static_cast<Control*>(base_); }
  uint8_t* arena() const;
  size_t arena_bytes() const { return control().arena_bytes; }
  // Which rank owns a row in the gather_owned of an epoch; a rank marks its own, and marks of others are older.
  static constexpr size_t kMarks = size_t{1} << 20;
  uint64_t* marks(uint64_t epoch) const;

 private:
  Region(int descriptor, void* base, size_t bytes) : descriptor_(descriptor), base_(base), bytes_(bytes) {}

  int descriptor_;  // its own
  void* base_;
  size_t bytes_;
};

inline uint64_t owner_mark(uint64_t epoch, int rank) { return epoch << 8 | static_cast<uint64_t>(rank); }

}  // namespace reprise::ranks
