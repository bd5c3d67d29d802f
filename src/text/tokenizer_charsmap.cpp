#include "text/tokenizer_charsmap.h"

#include "text/unicode.h"

namespace reprise::text {
namespace {

// A unit of the trie: a label, where its children lie relative to it, and whether one of them is a leaf; or a leaf.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t leaf) { return leaf & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
size_t offset_of(uint32_t unit) { return size_t{unit >> 10} << ((unit & 0x200) >> 6); }

uint32_t word_at(std::string_view bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) word |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return word;
}

}  // namespace

Result<Charsmap> Charsmap::read(std::string_view bytes) {
  if (bytes.size() < 4) return invalid("{} bytes have no size of a trie", bytes.size());
  const size_t size = word_at(bytes, 0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4)
    return invalid("a trie of {} bytes in {}; allowed: whole words that lie in it", size, bytes.size());
  Charsmap map;
  for (size_t at = 4; at < 4 + size; at += 4) map.units_.push_back(word_at(bytes, at));
  map.replacements_ = bytes.substr(4 + size);
  if (!is_valid_utf8(map.replacements_)) return invalid("the replacements are not valid UTF-8");
  return map;
}

// That of the shortest entry with which the part begins.
std::optional<std::string_view> Charsmap::replacement(std::string_view part) const {
  size_t at = offset_of(units_[0]);
  for (const char c : part) {
    const auto byte = static_cast<uint8_t>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size() || value_of(units_[at]) > replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(value_of(units_[at]));
    const bool inside = !rest.empty() && (static_cast<uint8_t>(rest[0]) & 0xC0) == 0x80;  // of a character
    if (inside) return std::nullopt;
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

Result<std::string> Charsmap::apply(std::string_view text, size_t most) const {
  constexpr size_t kWholeCluster = 5;  // bytes
  std::string out;
  const auto put = [&](std::string_view part) {
    const auto instead = replacement(part);
    out += instead.value_or(part);
    return instead.has_value();
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view cluster = text.substr(at, cluster_size(text, at));
    at += cluster.size();
    const size_t before = out.size();
    if (cluster.size() > kWholeCluster || !put(cluster)) {
      out.resize(before);
      for (size_t i = 0; i < cluster.size();) {
        const size_t size = code_point_at(cluster, i).size;
        put(cluster.substr(i, size));
        i += size;
      }
    }
    if (out.size() > most) return invalid("normalizing made a text of more than {} bytes", most);
  }
  return out;
}

}  // namespace reprise::text
