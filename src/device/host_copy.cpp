#include "device/host_copy.h"

#include <algorithm>
#include <cstring>

namespace reprise {

namespace {

bool in_place(const Device& device) { return device.info().host_visible && !device.info().asynchronous; }

}  // namespace

Result<void*> HostCopy::ask(Device& device, Stream& stream, void* data, size_t bytes) {
  if (in_place(device)) return data;
  if (buffer_.size() < bytes) {
    ASSIGN_OR_RETURN(buffer_, device.host_pool().allocate(bytes, "results"));
  }
  if (bytes > 0) RETURN_IF_ERROR(stream.copy(buffer_.data(), data, bytes, Copy::DeviceToHost));
  return buffer_.data();
}

Result<void*> HostCopy::fetch(Device& device, Stream& stream, void* data, size_t bytes) {
  ASSIGN_OR_RETURN(void* here, ask(device, stream, data, bytes));
  if (here != data) RETURN_IF_ERROR(stream.synchronize());
  return here;
}

Status HostCopy::put_back(Device& device, Stream& stream, void* data, size_t bytes) {
  if (in_place(device)) return Status::ok();
  CHECK(bytes <= buffer_.size(), "{} bytes go back, {} came", bytes, buffer_.size());
  RETURN_IF_ERROR(stream.copy(data, buffer_.data(), bytes, Copy::HostToDevice));
  return stream.synchronize();
}

Status fill_bytes(Device& device, Stream& stream, void* data, uint8_t value, size_t bytes) {
  if (device.info().host_visible) {
    if (bytes > 0) std::memset(data, value, bytes);
    return Status::ok();
  }
  constexpr size_t kChunk = size_t{1} << 20;
  ASSIGN_OR_RETURN(Buffer pattern, device.host_pool().allocate(std::min(bytes, kChunk), "pattern"));
  if (pattern) std::memset(pattern.data(), value, pattern.size());
  for (size_t done = 0; done < bytes; done += kChunk)
    RETURN_IF_ERROR(stream.copy(static_cast<uint8_t*>(data) + done, pattern.data(), std::min(kChunk, bytes - done),
                                Copy::HostToDevice));
  return stream.synchronize();
}

}  // namespace reprise
