#include "weights/content_hash.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <unordered_map>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "weights/chunked_file.h"

namespace reprise::weights {
namespace {

constexpr size_t kMaxMemo = size_t{4} << 20;
constexpr size_t kBlock = size_t{1} << 20;  // stays in the cache between the copy and the digest
static_assert(ChunkedFile::kChunk % kBlock == 0);
// Wider than the time stamps of file systems (a few milliseconds, two seconds on FAT).
constexpr int64_t kSettled = 2;

// What the file system says of a file, as one string: equal strings, equal bytes.
std::string identity_of(const struct stat& st) {
  return fmt::format("{} {} {} {}.{} {}.{}", st.st_dev, st.st_ino, st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                     st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

Result<struct stat> stat_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return error(Code::NotFound, "{}: {}", path, std::strerror(errno));
  return st;
}

Result<std::string> hash_of(const std::string& path, const struct stat& before, int threads) {
  const ChunkedFile file(path, O_RDONLY);
  if (!file.is_open()) return invalid("{}: {}", path, std::strerror(errno));
  const auto total = static_cast<size_t>(before.st_size);
  constexpr size_t kBlocks = ChunkedFile::kChunk / kBlock;
  // The hash of every block, in the order of the file.
  std::vector<Digest> digests((total + kBlock - 1) / kBlock);
  const bool good = for_each_chunk(total, threads, [&](size_t chunk) {
    const size_t bytes = chunk_bytes(total, chunk);
    std::vector<uint8_t> block(std::min(kBlock, bytes));
    for (size_t i = 0, done = 0; done < bytes; ++i, done += kBlock) {
      const size_t n = std::min(kBlock, bytes - done);
      if (!file.read(block.data(), n, chunk * ChunkedFile::kChunk + done)) return false;
      digests[chunk * kBlocks + i] = digest_of(std::span<const uint8_t>(block).first(n));
    }
    return true;
  });
  if (!good) return invalid("{}: it could not be read to its end", path);
  ASSIGN_OR_RETURN(const struct stat after, stat_of(path));
  if (identity_of(after) != identity_of(before)) return invalid("{}: it changed while it was read", path);
  std::string all = fmt::format("{}", total);
  for (const Digest& d : digests) all += d.text();
  return digest_of(all).text();
}

struct Remembered {
  std::string identity, hash;
};
using Memo = std::unordered_map<std::string, Remembered>;

// Anything that is not a memo is an empty one.
Memo read_memo(const std::string& path) {
  Memo memo;
  const auto text = path.empty() ? Result<std::string>(invalid("no memo")) : read_file(path, kMaxMemo);
  if (!text.is_ok()) return memo;
  const auto json = parse_json(*text, path);
  if (!json.is_ok() || !json->is_object()) return memo;
  for (const auto& [file, entry] : json->items())
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string())
      memo[file] = {entry[0], entry[1]};
  return memo;
}

void write_memo(const std::string& path, const Memo& memo) {
  Json json = Json::object();
  for (const auto& [file, entry] : memo) json[file] = {entry.identity, entry.hash};
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  // Without the memo the next start reads the files again; the cache that it belongs to reports folders like this.
  (void)write_file_atomically(path, json.dump(-1, ' ', true, Json::error_handler_t::replace));
}

bool settled(const struct stat& st, int64_t now) {
  return st.st_mtim.tv_sec + kSettled < now && st.st_ctim.tv_sec + kSettled < now;
}

}  // namespace

Result<ContentHashes> hash_contents(std::span<const std::string> files, const std::string& memo_path, int threads) {
  const Memo known = read_memo(memo_path);
  Memo memo;
  ContentHashes out;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const struct stat st, stat_of(file));
    const std::string identity = identity_of(st);
    if (const auto it = known.find(file); it != known.end() && it->second.identity == identity) {
      out.hashes.push_back(it->second.hash);
      memo[file] = it->second;
      continue;
    }
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    ASSIGN_OR_RETURN(std::string hash, hash_of(file, st, threads));
    out.bytes_read += static_cast<uint64_t>(st.st_size);
    if (settled(st, now)) memo[file] = {identity, hash};
    out.hashes.push_back(std::move(hash));
  }
  if (out.bytes_read > 0 && !memo.empty() && !memo_path.empty()) write_memo(memo_path, memo);
  return out;
}

}  // namespace reprise::weights
