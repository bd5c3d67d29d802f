#include "api/kept_models.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "api/default_model.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/layout.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quantisation.h"
#include "engine/memory_rules.h"
#include "kv/kv_pool.h"
#include "models/model.h"
#include "settings/setting.h"

namespace reprise::api {

using namespace api;

namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using checkpoint::ModelConfigFields;

size_t machine_memory() {
  return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

engine::EngineOptions usual_options() {
  engine::EngineOptions o;
  DeviceInfo cpu;
  cpu.kind = DeviceKind::Cpu;
  cpu.memory_bytes = machine_memory();
  CHECK(engine::fill_defaults(o, cpu).is_ok(), "the CPU's defaults are fixed");
  return o;
}

DType usual_dtype(const ModelConfigFields& f, const Checkpoint& c, const checkpoint::QuantPlan& plan) {
  DeviceInfo device;
  device.kind = DeviceKind::Cpu;
  const auto isa = cpu::parse_isa("auto");
  CHECK(isa.is_ok(), "a program that runs has kernels for this processor");
  device.isa = cpu::isa_name(*isa);
  device.bf16_dots = cpu::has_fast_bf16(*isa);
  return engine::usual_dtype(f, &c, plan, device).dtype;
}

uint64_t weight_bytes(const Checkpoint& c, const checkpoint::QuantPlan& plan, DType dtype) {
  uint64_t sum = 0;
  for (const auto& t : c.tensors()) {
    const bool floats = checkpoint::readable_as_float(t.type);
    const checkpoint::LinearQuant& q = plan.of(t.name);
    if (q.scheme == checkpoint::LinearScheme::Packed) {
      const BlockFormatInfo& block = block_format_info(q.block);
      sum += cpu::packed_bytes(q.block, 1, t.rows(), t.row_elements() / block.elements * block.bytes);
      continue;
    }
    sum += floats ? static_cast<uint64_t>(t.elements()) * size_of(dtype) : t.bytes;
  }
  return sum;
}

kv::KvShape kv_shape(const ModelConfigFields& f, DType dtype) {
  if (!f.latent) return kv::KvShape::grouped(f.num_hidden_layers, f.num_key_value_heads, f.head_dim, dtype);
  kv::KvShape shape;
  const auto row = static_cast<size_t>(f.latent->kv_lora_rank + f.latent->qk_rope_head_dim) * size_of(dtype);
  for (int64_t l = 0; l < f.num_hidden_layers; ++l)
    shape.caches.push_back({"c_kv." + std::to_string(l), static_cast<size_t>(kv::kPageTokens) * row});
  return shape;
}

MemoryNeed memory_need(const ModelConfigFields& f, const Checkpoint& c, const checkpoint::QuantPlan& plan) {
  const DType dtype = usual_dtype(f, c, plan);
  const kv::KvShape shape = kv_shape(f, dtype);
  MemoryNeed need;
  need.weight_bytes = weight_bytes(c, plan, dtype);
  need.kv_token_bytes = shape.token_bytes();
  need.context_length = f.max_position_embeddings;
  const auto pages =
      engine::kv_pages_that_fit({static_cast<double>(machine_memory()), usual_options().mem_fraction_static,
                                 static_cast<double>(need.weight_bytes), static_cast<double>(shape.page_bytes())},
                                kv::pages_for(need.context_length));
  if (pages) need.cache_tokens = std::min(*pages * kv::kPageTokens, need.context_length);
  return need;
}

std::string weights_words(const ModelConfigFields& f, const Checkpoint& c, const checkpoint::QuantPlan& plan,
                          const std::string& path) {
  if (c.format() == Checkpoint::Format::Gguf) {
    const std::string tag = hub::gguf_tag(path);
    return tag.empty() ? "gguf" : "gguf " + tag;
  }
  if (plan.format != checkpoint::Quantization::None)
    return fmt::format("{}", checkpoint::quantization_name(plan.format));
  return std::string(dtype_name(usual_dtype(f, c, plan)));
}

Status read_model(ListedModel& m) {
  const checkpoint::Families known = models::families();
  const bool folder = fs::is_directory(m.path);
  // The configuration first: of a model of another kind it is all there is to say.
  if (folder) {
    // What it is called is told even where it is not known.
    if (const auto any = checkpoint::read_model_config(m.path, {}, models::families(true)))
      m.architecture = any->architecture;
    RETURN_IF_ERROR(checkpoint::read_model_config(m.path, {}, known).status());
  }
  ASSIGN_OR_RETURN(const Checkpoint c, Checkpoint::open(m.path, known));
  ASSIGN_OR_RETURN(const ModelConfigFields f, c.gguf() ? checkpoint::read_model_config(*c.gguf(), {}, known)
                                                       : checkpoint::read_model_config(m.path, {}, known));
  m.architecture = f.architecture;
  ASSIGN_OR_RETURN(const auto plan, checkpoint::make_quant_plan(checkpoint::Quantization::Auto, f, &c));
  m.weights = weights_words(f, c, plan, m.path);
  m.need = memory_need(f, c, plan);
  return Status::ok();
}

void add_kept(std::vector<ListedModel>& out, const hub::HubCache::Entry& e, const std::string& name,
              const std::string& file, std::string_view source) {
  ListedModel m;
  m.name = name;
  m.source = source;
  m.path = e.snapshot.folder;
  const auto kept = hub::kept_model(e.snapshot, file, e.name.repo);
  if (kept) {
    m.path = kept->path;
    m.bytes = kept->bytes;
  }
  m.problem = kept ? kept->missing : settings::as_flags(kept.status().message());
  if (m.problem.empty()) return out.push_back(std::move(m));
  m.complete = false;
  if (e.partial_bytes > 0)
    m.problem += fmt::format("; {} have arrived of unfinished files", hub::size_words(e.partial_bytes));
  m.problem += "; to go on: reprise pull " + name;
  out.push_back(std::move(m));
}

// A repository may hold safetensors and several GGUF files; each is a model.
void add_entry(std::vector<ListedModel>& out, const hub::HubCache::Entry& e, std::string_view source) {
  const hub::SnapshotFiles there = hub::files_of(e.snapshot);
  hub::Listing all = there.listing;
  for (const std::string& path : there.broken) all.files.push_back({path, 0, "", ""});
  const auto ggufs = hub::gguf_choices(all);
  const bool folder =
      std::any_of(all.files.begin(), all.files.end(), [](const hub::RepoFile& f) { return f.path == "config.json"; });
  if (folder || ggufs.empty()) add_kept(out, e, e.name.text(), "", source);
  for (const hub::GgufChoice& g : ggufs) {
    const auto same_tag = std::count_if(ggufs.begin(), ggufs.end(), [&](const auto& o) { return o.tag == g.tag; });
    hub::ModelName name = e.name;
    name.file = g.tag.empty() || same_tag > 1 ? g.path : g.tag;
    add_kept(out, e, name.text(), g.path, source);
  }
}

Status add_cache(std::vector<ListedModel>& out, const hub::HubCache& cache, std::string_view source) {
  for (const auto& e : cache.entries()) add_entry(out, e, source);
  return Status::ok();
}

Status add_default_model(std::vector<ListedModel>& out) {
  const auto file = default_model_file();
  std::error_code gone;
  if (!file || !fs::exists(*file, gone)) return Status::ok();
  ListedModel m;
  m.name = kDefaultModelName;
  m.source = "reprise";
  m.path = *file;
  m.bytes = fs::file_size(*file, gone);
  m.complete = m.bytes == kDefaultModelBytes;
  if (!m.complete)
    m.problem = fmt::format("{} of {} bytes; remove {} and fetch it anew: reprise pull {}", m.bytes, kDefaultModelBytes,
                            *file, m.name);
  out.push_back(std::move(m));
  return Status::ok();
}

std::string memory_words(const ListedModel& m) {
  if (!m.need) return "";
  const MemoryNeed& n = *m.need;
  if (n.cache_tokens == 0) return fmt::format("too large: {} of weights", hub::size_words(n.weight_bytes));
  if (n.cache_tokens < n.context_length)
    return fmt::format("fits with {} of {} tokens", n.cache_tokens, n.context_length);
  return fmt::format("fits, {} tokens", n.context_length);
}

}  // namespace

void describe(ListedModel& m) {
  if (!m.complete) return;
  const Status s = read_model(m);
  if (s.is_ok()) return;
  m.problem = settings::as_flags(s.message());
  // The folder of a snapshot is long, and in the path already.
  const std::string folder = fs::path(m.path).parent_path().string() + "/";
  if (m.problem.starts_with(folder)) m.problem.erase(0, folder.size());
}

Result<std::vector<ListedModel>> listed_models(const HubOptions& flags) {
  std::vector<ListedModel> out;
  RETURN_IF_ERROR(add_default_model(out));
  if (!flags.download_dir.empty()) {
    ASSIGN_OR_RETURN(const hub::Hub one, open_hub(flags));
    RETURN_IF_ERROR(
        add_cache(out, one.cache(), one.settings().kind == hub::HubKind::ModelScope ? "modelscope" : "huggingface"));
  } else {
    for (const auto kind : {hub::HubKind::HuggingFace, hub::HubKind::ModelScope}) {
      ASSIGN_OR_RETURN(const std::string folder, hub::hub_cache(kind, ::getenv));
      RETURN_IF_ERROR(
          add_cache(out, hub::HubCache(kind, folder), kind == hub::HubKind::ModelScope ? "modelscope" : "huggingface"));
    }
  }
  for (ListedModel& m : out) describe(m);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

OrderedJson models_json(const std::vector<ListedModel>& models) {
  OrderedJson j;
  j["memory_bytes"] = machine_memory();
  j["memory_fraction"] = usual_options().mem_fraction_static;
  j["models"] = OrderedJson::array();
  for (const ListedModel& m : models) {
    OrderedJson o;
    o["name"] = m.name;
    o["source"] = m.source;
    o["path"] = m.path;
    o["bytes"] = m.bytes;
    o["complete"] = m.complete;
    o["architecture"] = m.architecture.empty() ? OrderedJson() : OrderedJson(m.architecture);
    o["weights"] = m.weights.empty() ? OrderedJson() : OrderedJson(m.weights);
    o["fits"] = m.need ? OrderedJson(m.need->cache_tokens > 0) : OrderedJson();
    if (m.need) {
      o["weight_bytes"] = m.need->weight_bytes;
      o["kv_bytes_per_token"] = m.need->kv_token_bytes;
      o["context_length"] = m.need->context_length;
      o["cache_tokens"] = m.need->cache_tokens;
    }
    o["problem"] = m.problem.empty() ? OrderedJson() : OrderedJson(m.problem);
    j["models"].push_back(std::move(o));
  }
  return j;
}

std::string models_table(const std::vector<ListedModel>& models) {
  if (models.empty()) return "no models yet; fetch one: reprise pull smollm2, or reprise pull Qwen/Qwen3-0.6B\n";
  std::vector<std::array<std::string, 5>> rows{{"model", "size", "architecture", "weights", "memory"}};
  std::array<size_t, 4> width{};
  for (const ListedModel& m : models)
    rows.push_back({m.name, hub::size_words(m.bytes), m.architecture, m.weights, memory_words(m)});
  for (const auto& row : rows)
    for (size_t i = 0; i < width.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    // A model that cannot be run has its reason in place of what follows from opening it.
    const bool broken = r > 0 && !models[r - 1].problem.empty();
    for (size_t i = 0; i < (broken ? 2 : width.size()); ++i) line += fmt::format("{:<{}}  ", rows[r][i], width[i]);
    line += broken ? (models[r - 1].complete ? "cannot be run: " : "incomplete: ") + models[r - 1].problem : rows[r][4];
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace reprise::api
