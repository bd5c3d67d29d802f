// HostCopy: bytes of a device where the host can work on them: in place where the host sees the device's memory and no
// work runs behind its back, else in a buffer of its own that grows as needed and is kept.
//
// Owned by the code that looks at results; the device outlives it. One thread at a time.
#pragma once

#include "device/device.h"

namespace reprise {

class HostCopy {
 public:
  // Where `bytes` at `data` will be once the stream is synchronized, good until the next call.
  Result<void*> ask(Device& device, Stream& stream, void* data, size_t bytes);
  // The same, and they are there.
  Result<void*> fetch(Device& device, Stream& stream, void* data, size_t bytes);
  // What the host made of the bytes fetched last goes back to `data`.
  Status put_back(Device& device, Stream& stream, void* data, size_t bytes);

 private:
  Buffer buffer_;
};

// Sets device memory to one byte value, for checks.
Status fill_bytes(Device& device, Stream& stream, void* data, uint8_t value, size_t bytes);

}  // namespace reprise
