#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace reprise::checkpoint {
namespace {

// A file under a temporary name, renamed by commit() and removed otherwise. It streams, so that a model is not copied
// once more in memory as base/file.h's writer would need.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : path_(path), temporary_(fmt::format("{}.tmp.{}", path, ::getpid())) {}
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (created_) ::unlink(temporary_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  Status create() {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) return invalid("{}: {}", temporary_, std::strerror(errno));
    created_ = true;
    return Status::ok();
  }
  Status write(const void* data, size_t size) {
    const char* p = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::write(fd_, p, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return invalid("{}: {}", temporary_, std::strerror(errno));
      p += n;
      size -= static_cast<size_t>(n);
    }
    return Status::ok();
  }
  Status commit() {
    const int closed = ::close(fd_);
    fd_ = -1;
    if (closed != 0) return invalid("{}: {}", temporary_, std::strerror(errno));
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return invalid("{}: {}", path_, std::strerror(errno));
    created_ = false;
    return Status::ok();
  }

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  bool created_ = false;
};

Status check(const std::string& path, const TensorToWrite& t) {
  uint64_t bytes = size_of(t.dtype);
  for (int64_t d : t.shape)
    if (d < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes))
      return invalid("{}: tensor \"{}\": shape [{}] is negative or overflows", path, t.name, fmt::join(t.shape, ", "));
  if (bytes != t.bytes.size())
    return invalid("{}: tensor \"{}\": shape [{}] of {} needs {} bytes, but {} were given", path, t.name,
                   fmt::join(t.shape, ", "), safetensors_name(t.dtype), bytes, t.bytes.size());
  if (t.name.empty() || t.name == "__metadata__")
    return invalid("{}: \"{}\" is not allowed as the name of a tensor", path, t.name);
  return Status::ok();
}

}  // namespace

Status write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& t : tensors) {
    RETURN_IF_ERROR(check(path, t));
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    const size_t sa = size_of(a->dtype), sb = size_of(b->dtype);
    return sa != sb ? sa > sb : a->name < b->name;
  });

  // Put together piece by piece: an ordered JSON object searches linearly on every insertion.
  std::string text = "{";
  std::unordered_set<std::string_view> names;
  uint64_t offset = 0;
  try {
    if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump();
    for (const TensorToWrite* t : order) {
      if (!names.insert(t->name).second) return invalid("{}: tensor \"{}\" is given twice", path, t->name);
      text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          text.size() > 1 ? "," : "", Json(t->name).dump(), safetensors_name(t->dtype),
                          fmt::join(t->shape, ","), offset, offset + t->bytes.size());
      offset += t->bytes.size();
    }
  } catch (const nlohmann::json::exception&) {
    return invalid("{}: the name of a tensor or a metadata string is not UTF-8", path);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins on 8 bytes
  if (text.size() > kMaxSafetensorsHeader)
    return invalid("{}: the header would take {} bytes, more than the allowed {}", path, text.size(),
                   kMaxSafetensorsHeader);

  TemporaryFile file(path);
  RETURN_IF_ERROR(file.create());
  const uint64_t header_size = text.size();
  RETURN_IF_ERROR(file.write(&header_size, sizeof header_size));
  RETURN_IF_ERROR(file.write(text.data(), text.size()));
  for (const TensorToWrite* t : order) RETURN_IF_ERROR(file.write(t->bytes.data(), t->bytes.size()));
  return file.commit();
}

}  // namespace reprise::checkpoint
