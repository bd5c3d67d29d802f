#include "hub/choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/lower_case.h"
#include "hub/companions.h"
#include "hub/model_name.h"

namespace reprise::hub {
namespace {

constexpr std::array<std::string_view, 2> kByRule{"Q4_K_M", "Q8_0"};
constexpr std::string_view kGguf = ".gguf", kSafetensors = ".safetensors", kIndex = ".safetensors.index.json";

bool same(std::string_view a, std::string_view b) { return lower_case(a) == lower_case(b); }

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "x-00002-of-00003" is part 2 of 3 of "x".
struct Part {
  std::string_view whole;
  size_t number = 1, count = 1;
};

Part part_of(std::string_view stem) {
  constexpr size_t kDigits = 5, kSuffix = 15;  // "-00002-of-00003"
  if (stem.size() <= kSuffix) return {stem};
  const std::string_view end = stem.substr(stem.size() - kSuffix);
  size_t number = 0, count = 0;
  const auto digits = [](std::string_view s, size_t& n) {
    const auto [stop, problem] = std::from_chars(s.data(), s.data() + s.size(), n);
    return problem == std::errc() && stop == s.data() + s.size();
  };
  if (end[0] != '-' || end.substr(1 + kDigits, 4) != "-of-" || !digits(end.substr(1, kDigits), number) ||
      !digits(end.substr(kSuffix - kDigits), count) || number < 1 || count < 2 || number > count)
    return {stem};
  return {stem.substr(0, stem.size() - kSuffix), number, count};
}

std::string_view without_gguf(std::string_view path) {
  return same(path.substr(path.size() - std::min(path.size(), kGguf.size())), kGguf)
             ? path.substr(0, path.size() - kGguf.size())
             : path;
}

// Names of llama.cpp's types and mixtures: "Q4_K_M", "IQ2_XXS", "TQ1_0", "MXFP4_MOE", "BF16", "f16".
bool is_tag(std::string_view word) {
  const std::string w = lower_case(word);
  for (const char* name : {"f16", "f32", "fp16", "fp32", "bf16"})
    if (w == name) return true;
  for (const std::string_view start : {"iq", "tq", "q", "mxfp", "nvfp"})
    if (w.starts_with(start) && w.size() > start.size() && w[start.size()] >= '0' && w[start.size()] <= '9')
      return std::all_of(w.begin(), w.end(),
                         [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
  return false;
}

std::string tag_of_stem(std::string_view stem) {
  for (size_t end = stem.size(); end > 0;) {
    const size_t cut = stem.find_last_of("-.", end - 1);
    const size_t begin = cut == stem.npos ? 0 : cut + 1;
    if (is_tag(stem.substr(begin, end - begin))) {
      // Unsloth's mixtures are another file than the plain ones: "UD-Q4_K_XL".
      const bool dynamic =
          begin >= 3 && same(stem.substr(begin - 3, 3), "UD-") && (begin == 3 || stem[begin - 4] == '-');
      return std::string(stem.substr(dynamic ? begin - 3 : begin, end - (dynamic ? begin - 3 : begin)));
    }
    if (cut == stem.npos) break;
    end = cut;
  }
  return {};
}

std::string_view plain_tag(std::string_view tag) { return same(tag.substr(0, 3), "UD-") ? tag.substr(3) : tag; }

bool helps_another(std::string_view path) {
  const std::string name = lower_case(base_name(path));
  return name.find("mmproj") != name.npos || name.find("imatrix") != name.npos;
}

std::string listed(const std::vector<GgufChoice>& all) {
  constexpr size_t kShown = 20;
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), kShown); ++i)
    out += fmt::format("{}{} ({})", i ? ", " : "", all[i].path, size_words(all[i].size));
  return all.size() > kShown ? fmt::format("{} and {} more", out, all.size() - kShown) : out;
}

bool is_named(const GgufChoice& c, std::string_view name) {
  const std::string_view wanted = without_gguf(name);
  return std::any_of(c.files.begin(), c.files.end(),
                     [&](const RepoFile& f) {
                       const std::string_view stem = without_gguf(f.path);
                       return stem == wanted || base_name(stem) == wanted;
                     }) ||
         part_of(without_gguf(c.path)).whole == wanted || base_name(part_of(without_gguf(c.path)).whole) == wanted;
}

// Those that the user's word fits best: by name, by whole tag, by tag.
std::vector<GgufChoice> fitting(const std::vector<GgufChoice>& all, const std::string& word) {
  std::vector<GgufChoice> out;
  const auto take = [&](auto fits) {
    if (out.empty()) std::copy_if(all.begin(), all.end(), std::back_inserter(out), fits);
  };
  take([&](const GgufChoice& c) { return without_gguf(c.path) == without_gguf(word); });
  take([&](const GgufChoice& c) { return is_named(c, word); });
  take([&](const GgufChoice& c) { return same(c.tag, word); });
  take([&](const GgufChoice& c) { return same(plain_tag(c.tag), word); });
  return out;
}

Choice of_gguf(const GgufChoice& g) {
  Choice c;
  c.files = g.files;
  c.gguf = g.path;
  return c;
}

Status check_parts(const GgufChoice& g, std::string_view where) {
  if (g.files.size() == g.parts) return Status::ok();
  return invalid("{}: {} announces {} parts, but {} are there", where, g.path, g.parts, g.files.size());
}

Result<Choice> choose_gguf(const Listing& listing, const std::string& file, std::string_view where) {
  const std::vector<GgufChoice> all = gguf_choices(listing);
  if (all.empty()) return error(Code::NotFound, "{} has no GGUF file, and so no \"{}\"", where, printable(file));
  const auto found = fitting(all, file);
  if (found.size() == 1) {
    RETURN_IF_ERROR(check_parts(found[0], where));
    return of_gguf(found[0]);
  }
  if (found.empty())
    return error(Code::NotFound, "{} has no GGUF file \"{}\"; it has {}", where, printable(file), listed(all));
  return invalid("{}: \"{}\" fits several files; give one of these names: {}", where, printable(file), listed(found));
}

Result<Choice> choose_gguf_by_rule(const std::vector<GgufChoice>& all, std::string_view where) {
  for (const std::string_view tag : kByRule) {
    std::vector<GgufChoice> found;
    std::copy_if(all.begin(), all.end(), std::back_inserter(found),
                 [&](const GgufChoice& c) { return same(c.tag, tag); });
    if (found.size() > 1) break;
    if (found.empty()) continue;
    RETURN_IF_ERROR(check_parts(found[0], where));
    Choice c = of_gguf(found[0]);
    c.by_rule = tag;
    return c;
  }
  if (all.size() == 1) {
    RETURN_IF_ERROR(check_parts(all[0], where));
    Choice c = of_gguf(all[0]);
    c.by_rule = "the only GGUF file";
    return c;
  }
  return invalid("{} has several GGUF files; choose one, as {}:{}: {}", where, where,
                 all[0].tag.empty() ? all[0].path : all[0].tag, listed(all));
}

bool is_small_file(std::string_view path) {
  if (path == "config.json" || is_companion(path)) return true;
  return path.find('/') == path.npos && path.starts_with("quant_model_description") && path.ends_with(".json");
}

// The loader's order (checkpoint.cpp): one file, an index, ModelSlim's index, ModelSlim's file.
const RepoFile* weights_file(const Listing& listing) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (const RepoFile* f = listing.find(name)) return f;
  for (const std::string_view ending : {kIndex, kSafetensors}) {
    const RepoFile* found = nullptr;
    for (const RepoFile& f : listing.files) {
      if (!f.path.starts_with("quant_model_weight") || !f.path.ends_with(ending)) continue;
      if (found) return nullptr;
      found = &f;
    }
    if (found) return found;
  }
  return nullptr;
}

// What a repository has in place of what can be read, largest first.
std::string other_weights(const Listing& listing) {
  std::vector<const RepoFile*> files;
  for (const RepoFile& f : listing.files) files.push_back(&f);
  std::sort(files.begin(), files.end(), [](auto* a, auto* b) { return a->size > b->size; });
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(files.size(), 3); ++i)
    out += fmt::format("{}{} ({})", i ? ", " : "", printable(files[i]->path), size_words(files[i]->size));
  return out.empty() ? "it is empty" : "it has " + out;
}

}  // namespace

std::string size_words(uint64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.0f} kB", b / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.0f} MB", b / 1e6);
  return fmt::format("{:.1f} GB", b / 1e9);
}

std::string gguf_tag(std::string_view path) {
  const std::string_view stem = part_of(without_gguf(path)).whole;
  std::string tag = tag_of_stem(base_name(stem));
  const size_t slash = stem.rfind('/');
  // "Q4_K_M/model-00001-of-00002.gguf"
  if (tag.empty() && slash != stem.npos) tag = tag_of_stem(base_name(stem.substr(0, slash)));
  return tag;
}

std::vector<GgufChoice> gguf_choices(const Listing& listing) {
  std::map<std::string, std::map<size_t, RepoFile>> wholes;  // parts by number, by whole and count
  for (const RepoFile& f : listing.files) {
    const std::string_view stem = without_gguf(f.path);
    if (stem.size() == f.path.size() || helps_another(f.path)) continue;
    const Part part = part_of(stem);
    wholes[fmt::format("{} {}", part.whole, part.count)].emplace(part.number, f);
  }
  std::vector<GgufChoice> out;
  for (auto& [key, parts] : wholes) {
    GgufChoice c;
    c.path = parts.begin()->second.path;
    c.tag = gguf_tag(c.path);
    c.parts = part_of(without_gguf(c.path)).count;
    for (auto& [number, f] : parts) {
      c.size += f.size;
      c.files.push_back(std::move(f));
    }
    out.push_back(std::move(c));
  }
  std::stable_sort(out.begin(), out.end(), [](const GgufChoice& a, const GgufChoice& b) { return a.size < b.size; });
  return out;
}

Result<Choice> choose_files(const Listing& listing, const std::string& file, std::string_view where) {
  if (!file.empty()) return choose_gguf(listing, file, where);
  const RepoFile* weights = weights_file(listing);
  if (!weights) {
    if (const auto all = gguf_choices(listing); !all.empty()) return choose_gguf_by_rule(all, where);
    return error(Code::NotFound,
                 "{} has no weights that can be read here (model.safetensors, an index of shards, or GGUF); {}", where,
                 other_weights(listing));
  }
  if (!listing.find("config.json"))
    return error(Code::NotFound, "{} has safetensors, but no config.json; it is no model by itself (an adapter?)",
                 where);
  Choice c;
  for (const RepoFile& f : listing.files)
    if (is_small_file(f.path)) c.files.push_back(f);
  c.files.push_back(*weights);
  if (weights->path.ends_with(kIndex)) c.index = weights->path;
  return c;
}

Status add_shards(Choice& choice, const Listing& listing, const std::vector<std::string>& shards,
                  std::string_view where) {
  const std::string folder = choice.index.substr(0, choice.index.rfind('/') + 1);
  for (const std::string& name : shards) {
    const RepoFile* f = listing.find(folder + name);
    if (!f || !name.ends_with(kSafetensors))
      return error(Code::NotFound, "{}: {} names \"{}\", which is not there", where, choice.index, printable(name));
    choice.files.push_back(*f);
  }
  return Status::ok();
}

}  // namespace reprise::hub
