#include "weights/weight_cache.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/gguf_parts.h"
#include "weights/chunked_file.h"
#include "weights/content_hash.h"

namespace reprise::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = ChunkedFile::kChunk;
constexpr size_t kAlign = 4096;

struct Header {
  char magic[8] = {'R', 'E', 'P', 'R', 'W', 'G', 'H', 'T'};
  uint32_t version = 1;
  uint32_t chunks = 0;
  std::array<uint8_t, 16> key{};
  uint64_t bytes = 0;     // of the weights
  uint64_t checksum = 0;  // of this header with 0 here, and of the chunks' checksums, which follow it
};

// Where the weights begin in the file.
size_t data_offset(size_t chunks) {
  return (sizeof(Header) + chunks * sizeof(uint64_t) + kAlign - 1) / kAlign * kAlign;
}

uint64_t checksum_of(Header header, const std::vector<uint64_t>& sums) {
  header.checksum = 0;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(uint64_t));
  return XXH3_64bits(bytes.data(), bytes.size());
}

// The checkpoint's files, as far as weights come from them.
Result<std::vector<std::string>> files_of(const fs::path& source) {
  std::error_code failed;
  if (!fs::is_directory(source, failed)) return checkpoint::gguf_part_paths(source.string());
  std::vector<std::string> files;
  for (fs::directory_iterator it(source, failed), end; !failed && it != end; it.increment(failed)) {
    if (it->path().extension() == ".safetensors" || it->path().extension() == ".json")
      files.push_back(it->path().string());
    // Dense layers behind a pooling are in folders of their own (checkpoint/pooling.h).
    std::error_code none;
    if (const fs::path module = it->path() / "model.safetensors"; fs::exists(module, none))
      files.push_back(module.string());
  }
  if (failed) return invalid("{}: {}", source.string(), failed.message());
  std::sort(files.begin(), files.end());
  return files;
}

// Their content, all of it: a file's size and time say nothing of what a tool wrote under the same ones.
Status add_files(KeyBuilder& key, const fs::path& source, const std::string& memo, int threads) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, files_of(source));
  ASSIGN_OR_RETURN(const ContentHashes contents, hash_contents(files, memo, threads));
  for (size_t i = 0; i < files.size(); ++i) key.add(files[i], contents.hashes[i]);
  return Status::ok();
}

struct Place {
  std::string path;
  std::string prefix;  // of the file's name; what only a rebuild or a change of the checkpoint would replace
  PlanKey key;
};

Result<Place> place_of(const checkpoint::Checkpoint& checkpoint, const ParamStore& params, const LoadOptions& load,
                       const WeightCacheOptions& cache) {
  std::error_code failed;
  const fs::path source = fs::canonical(checkpoint.source(), failed);
  if (failed) return invalid("{}: {}", checkpoint.source(), failed.message());
  KeyBuilder layout;
  layout.add("source", source.string());
  layout.add("isa", cache.isa);
  for (size_t i = 0; i < params.params().size(); ++i) {
    const ParamPlan& p = params.params()[i];
    const auto offset = static_cast<uint8_t*>(params.data(i)) - static_cast<uint8_t*>(params.data(size_t{0}));
    layout.add(p.name,
               fmt::format("{} {} {} {}", describe(p.type), p.layout ? p.layout->name : "row_major", p.bytes, offset));
  }
  for (const DerivedParam& p : load.derived)
    for (const ParamPart& part : p.parts)
      layout.add(p.name, fmt::format("{} {} {} {} {} {} {} {} {} {} {}", part.tensor, part.rows,
                                     recipe_name(part.recipe), part.columns, part.other, part.first, part.of, part.from,
                                     part.whole, part.column, part.all_columns));
  KeyBuilder all = layout;
  all.add_build();
  KeyBuilder checkpoint_key;
  checkpoint_key.add("source", source.string());
  const std::string memo = fmt::format("{}/{}.content", cache.folder, checkpoint_key.key().text().substr(0, 16));
  RETURN_IF_ERROR(add_files(all, source, memo, load.threads));
  Place place;
  place.key = all.key();
  place.prefix = layout.key().text().substr(0, 16);
  place.path = fmt::format("{}/{}-{}.weights", cache.folder, place.prefix, place.key.text());
  return place;
}

// Ok, NotFound, or what is wrong with the file; then the parameters may hold anything.
Status read_weights(const Place& place, ParamStore& params, const LoadOptions& load) {
  const ChunkedFile file(place.path, O_RDONLY);
  if (!file.is_open()) return error(Code::NotFound, "no file");
  const Header expected;
  Header header;
  const size_t total = params.bytes(), chunks = chunk_count(total);
  if (!file.read(&header, sizeof header, 0)) return invalid("cut short");
  if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0) return invalid("not a file of weights");
  if (header.version != expected.version) return invalid("format version {}", header.version);
  if (header.key != place.key.bytes) return invalid("the weights of another key");
  if (header.bytes != total || header.chunks != chunks) return invalid("weights of another size");
  std::vector<uint64_t> sums(chunks);
  if (!file.read(sums.data(), chunks * sizeof(uint64_t), sizeof header)) return invalid("cut short");
  if (checksum_of(header, sums) != header.checksum) return invalid("the checksum of the header does not match");
  if (file.size() != data_offset(chunks) + total) return invalid("cut short");
  auto* data = static_cast<uint8_t*>(params.data(size_t{0}));
  const bool good = for_each_chunk(total, load.threads, [&](size_t i) {
    uint8_t* at = data + i * kChunk;
    const size_t bytes = chunk_bytes(total, i);
    return file.read(at, bytes, data_offset(chunks) + i * kChunk) && XXH3_64bits(at, bytes) == sums[i];
  });
  return good ? Status::ok() : invalid("the checksum does not match");
}

Status write_weights(const Place& place, const ParamStore& params, const LoadOptions& load, const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return invalid("{}: {}", folder, failed.message());
  static std::atomic<uint64_t> calls{0};
  const std::string temporary = fmt::format("{}.tmp.{}.{}", place.path, ::getpid(), ++calls);
  const size_t total = params.bytes(), chunks = chunk_count(total);
  Header header;
  header.key = place.key.bytes;
  header.bytes = total;
  header.chunks = static_cast<uint32_t>(chunks);
  std::vector<uint64_t> sums(chunks);
  const auto* data = static_cast<const uint8_t*>(params.data(size_t{0}));
  bool good = false;
  {
    const ChunkedFile file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.is_open()) return invalid("{}: {}", temporary, std::strerror(errno));
    good = for_each_chunk(total, load.threads, [&](size_t i) {
      const uint8_t* at = data + i * kChunk;
      sums[i] = XXH3_64bits(at, chunk_bytes(total, i));
      return file.write(at, chunk_bytes(total, i), data_offset(chunks) + i * kChunk);
    });
    header.checksum = checksum_of(header, sums);
    good = good && file.write(sums.data(), chunks * sizeof(uint64_t), sizeof header) &&
           file.write(&header, sizeof header, 0);
  }
  const int why = errno;
  if (!good || ::rename(temporary.c_str(), place.path.c_str()) != 0) {
    ::unlink(temporary.c_str());
    return invalid("{}: {}", place.path, std::strerror(good ? errno : why));
  }
  // Older files of this model in this layout are of no use.
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    std::error_code gone;
    if (name.starts_with(place.prefix + "-") && name.ends_with(".weights") && it->path() != fs::path(place.path))
      fs::remove(it->path(), gone);
  }
  return Status::ok();
}

}  // namespace

Result<std::string> weight_cache_file(const checkpoint::Checkpoint& checkpoint, const ParamStore& params,
                                      const LoadOptions& load, const WeightCacheOptions& cache) {
  ASSIGN_OR_RETURN(const Place place, place_of(checkpoint, params, load, cache));
  return place.path;
}

Status load_params_cached(const checkpoint::Checkpoint& checkpoint, ParamStore& params, const LoadOptions& load,
                          const WeightCacheOptions& cache) {
  if (cache.folder.empty() || params.bytes() == 0) return load_params(checkpoint, params, load);
  if (!cache.host_visible) {
    log::warning("`cache_weights`: this device's memory cannot be read and written by the host; nothing is kept");
    return load_params(checkpoint, params, load);
  }
  const auto place = place_of(checkpoint, params, load, cache);
  if (!place.is_ok()) {
    log::warning("weight cache: {}; reading the checkpoint", place.status().message());
    return load_params(checkpoint, params, load);
  }
  const Status found = read_weights(*place, params, load);
  if (found.is_ok()) {
    log::info("weights from {}", place->path);
    return Status::ok();
  }
  if (found.code() != Code::NotFound) {
    log::warning("weight cache: {}: {}; reading the checkpoint, and replacing it", place->path, found.message());
    std::memset(params.data(size_t{0}), 0, params.bytes());  // packing counts on zeros between rows
  }
  RETURN_IF_ERROR(load_params(checkpoint, params, load));
  const Status written = write_weights(*place, params, load, cache.folder);
  if (written.is_ok())
    log::info("weights kept in {}", place->path);
  else
    log::warning("weight cache: {}; nothing is kept", written.message());
  return Status::ok();
}

}  // namespace reprise::weights
