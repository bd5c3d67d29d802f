// Meeting: what the ranks of one communicator share: a block of memory in which each says what it runs, and through
// which the bytes go. Ranks are processes, or threads of one process with a device each; every one has a mapping of its
// own.
//
// The block is an anonymous file of the root's process: a process that has the root's information opens it through that
// process, and nothing is left behind. Found once by the root, joined once by each rank; exchange() is for the stream
// that runs the rank's collective, one at a time. Needs no lock of the World's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ascend_sim {

class Meeting {
 public:
  static constexpr int kMaxRanks = 16;

  // What a rank runs; all ranks must run the same.
  struct What {
    char name[24] = {};
    uint64_t count = 0;
    int32_t type = 0, reduction = 0, root = 0;
    bool operator==(const What&) const = default;
    std::string text() const;
  };
  // Parts of all ranks that lie there now: bytes [offset, offset + bytes[r]) of what rank r sends.
  struct Parts {
    size_t offset = 0;
    std::array<const uint8_t*, kMaxRanks> data{};
    std::array<size_t, kMaxRanks> bytes{};
  };

  // A new one; writes how it is found into `information`. False: the system gives no memory.
  static bool found(void* information, size_t bytes);
  // Null where this information leads nowhere, and then `problem` says why.
  static std::shared_ptr<Meeting> join(const void* information, int size, int rank, std::string* problem);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int size() const { return size_; }
  int rank() const { return rank_; }
  // Whether all have joined.
  bool complete() const;
  // All have joined: the block is not looked for any more.
  void close_door();
  // This rank comes to no further meeting.
  void leave();

  // Sends `bytes` and hands over what all send, piece by piece; `clock` becomes the latest of all ranks. Empty, or what
  // is wrong. `stop` is asked now and then: its text, unless empty, ends the wait.
  std::string exchange(const What& what, const void* data, size_t bytes, double* clock,
                       const std::function<void(const Parts&)>& take, const std::function<std::string()>& stop);

 private:
  struct Block;
  Meeting(Block* block, int size, int rank) : block_(block), size_(size), rank_(rank) {}

  Block* block_;
  int size_, rank_;
  uint64_t met_ = 0;
};

}  // namespace ascend_sim
