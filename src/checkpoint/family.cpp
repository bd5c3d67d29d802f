#include "checkpoint/family.h"

#include "checkpoint/gguf_groups.h"

namespace reprise::checkpoint {
namespace {

std::string words_of(const MissingFamily& m) { return fmt::format("; nearest: {}; missing: {}", m.nearest, m.missing); }

}  // namespace

std::string Families::nearest_to(std::string_view architecture, std::string_view model_type) const {
  for (const MissingFamily& m : missing)
    if (m.architecture == architecture) return words_of(m);
  // A type that a family here has as well says nothing: the head may be what is missing.
  if (of_model_type(model_type)) return {};
  for (const MissingFamily& m : missing)
    if (!model_type.empty() && m.model_type == model_type) return words_of(m);
  return {};
}

std::string Families::nearest_to_gguf(std::string_view name) const {
  for (const MissingFamily& m : missing)
    if (!name.empty() && m.gguf == name) return words_of(m);
  return {};
}

const Family* Families::find(std::string_view architecture) const {
  for (const Family* f : list)
    if (f->architecture == architecture) return f;
  for (const Family* f : list)
    if (!architecture.empty() && (f->wrapper == architecture || f->other_architecture == architecture)) return f;
  return nullptr;
}

const Family* Families::of_model_type(std::string_view model_type) const {
  for (const Family* f : list)
    if (!model_type.empty() && (f->model_type == model_type || f->other_model_type == model_type)) return f;
  return nullptr;
}

Result<const Family*> Families::of_gguf(const GgufFile& file) const {
  ASSIGN_OR_RETURN(const auto arch, file.string("general.architecture"));
  const Family* usual = nullptr;
  for (const Family* f : list) {
    if (!arch || arch->empty() || (f->gguf.name != *arch && f->gguf.other_name != *arch)) continue;
    if (!f->gguf.holds) {
      usual = f;
      continue;
    }
    Json none;
    ASSIGN_OR_RETURN(const bool holds, f->gguf.holds(GgufFields(file, *arch, none)));
    if (holds) return f;
  }
  return usual;
}

}  // namespace reprise::checkpoint
