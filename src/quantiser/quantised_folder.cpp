#include "quantiser/quantised_folder.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "api/text_model.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "hub/companions.h"

namespace reprise::quantiser {
namespace {

namespace fs = std::filesystem;

// What hub/companions.h lists, of a model's folder and of the folders in it (`inside`, with its slash).
Status copy_companions(const fs::path& from, const fs::path& to, const std::string& inside = "") {
  std::error_code failed, ignored;
  fs::directory_iterator it(from / inside, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && it != fs::directory_iterator(); it.increment(failed)) {
    const std::string name = inside + it->path().filename().string();
    if (inside.empty() && it->is_directory(ignored)) {
      RETURN_IF_ERROR(copy_companions(from, to, name + "/"));
    } else if (hub::is_companion(name) && it->is_regular_file(ignored)) {
      std::error_code no_copy;
      fs::create_directories((to / name).parent_path(), ignored);
      fs::copy_file(*it, to / name, fs::copy_options::overwrite_existing, no_copy);
      if (no_copy) return invalid("{}: {}", (to / name).string(), no_copy.message());
    }
  }
  return failed ? invalid("{}: {}", (from / inside).string(), failed.message()) : Status::ok();
}

Status write_tokenizer(const FolderSource& source, const fs::path& to,
                       const std::function<void(const std::string&)>& notice) {
  auto made = api::gguf_tokenizer_files(*source.checkpoint.gguf());
  if (made.status().code() == Code::Unsupported || made.status().code() == Code::NotFound) {
    notice(fmt::format("no tokenizer is written ({}); give `tokenizer_path` {} with the new folder",
                       made.status().message(), source.name));
    return Status::ok();
  }
  RETURN_IF_ERROR(made.status());
  for (const auto& [name, content] : *made) RETURN_IF_ERROR(write_file_atomically((to / name).string(), content));
  return Status::ok();
}

Json config_to_write(const FolderSource& source, const QuantisedCheckpoint& q) {
  Json config = source.config;
  config["torch_dtype"] = source.dtype == DType::BF16 ? "bfloat16" : source.dtype == DType::F16 ? "float16" : "float32";
  config.erase("dtype");
  config.erase("gguf_rope_freqs");  // a word of our own for what GGUF files may hold
  if (!q.quantization_config.is_null()) config["quantization_config"] = q.quantization_config;
  return config;
}

}  // namespace

bool has_tokenizer(const std::string& folder) {
  std::error_code ignored;
  const fs::path path = folder;
  return fs::exists(path / "tokenizer.json", ignored) || fs::exists(path / "tiktoken.model", ignored);
}

Status write_quantised_folder(const FolderSource& source, const QuantisedCheckpoint& q, const std::string& folder,
                              const std::function<void(const std::string&)>& notice) {
  const fs::path to = folder;
  std::error_code failed;
  fs::create_directories(to, failed);
  if (failed) return invalid("{}: {}", folder, failed.message());
  std::vector<checkpoint::TensorToWrite> tensors;
  for (const auto& t : q.tensors) tensors.push_back({t.name, t.dtype, t.shape, t.bytes});
  RETURN_IF_ERROR(checkpoint::write_safetensors((to / "model.safetensors").string(), tensors, {{"format", "pt"}}));
  RETURN_IF_ERROR(write_file_atomically((to / "config.json").string(), config_to_write(source, q).dump(2) + "\n"));
  // A description that an earlier run left here would contradict this one.
  fs::remove(to / "quant_model_description.json", failed);
  if (!q.description.is_null())
    RETURN_IF_ERROR(
        write_file_atomically((to / "quant_model_description.json").string(), q.description.dump(2) + "\n"));
  if (source.checkpoint.gguf()) return write_tokenizer(source, to, notice);
  // A single file of weights may lie among those of other models.
  return fs::is_directory(source.path, failed) ? copy_companions(source.path, to) : Status::ok();
}

}  // namespace reprise::quantiser
