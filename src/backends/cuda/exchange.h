// Exchange: how the kernels of ops over ranks reach the other ranks. The Communicator (communicator.h) is the only one;
// this face of it has no vendor header and no fmt, so that nvcc reads it as well.
//
// Entries of such ops have it as their constant. Calls enqueue on a stream and may be captured; all ranks make the same
// ones in the same order. They return null, or in words what went wrong, which live as long as the Exchange. Used by
// the thread that launches.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace reprise::cuda {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  // From so many bytes on, what a rank need not receive and add takes longer than a second meeting. The same on all.
  virtual int64_t worth_a_meeting() const = 0;
  // `bytes` of every rank, one after the other.
  virtual const char* all_gather(const void* from, void* to, int64_t bytes, CUstream_st* stream) = 0;
  // Each rank gets one share of every rank's `bytes`: rank 0 the first `share` of them, and so on; the last ranks may
  // get less. Shares of all ranks lie one after the other, as long as this rank's is.
  virtual const char* deal(const void* from, void* to, int64_t bytes, int64_t share, CUstream_st* stream) = 0;
  // Bits of all ranks put together, in place: each byte is zero on all ranks but one at most.
  virtual const char* merge(void* data, int64_t bytes, CUstream_st* stream) = 0;
};

}  // namespace reprise::cuda
