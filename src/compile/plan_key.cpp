#include "compile/plan_key.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "base/entropy.h"
#include "passes/extension.h"

namespace reprise {
namespace {

// The build id among one segment of notes, or "".
std::string build_id_of(const uint8_t* at, size_t size) {
  const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t whole = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (whole > size) break;
    const uint8_t* name = at + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
      return hexadecimal({name + 4, note.n_descsz});
    at += whole;
    size -= whole;
  }
  return {};
}

// Nothing is known of a file that is gone, so what was computed with it is good for this process alone.
const std::string& unreadable() {
  static const std::string id = fmt::format("unreadable, process {:016x}", entropy());
  return id;
}

int add_object(dl_phdr_info* info, size_t, void* out) {
  const std::string name = info->dlpi_name ? info->dlpi_name : "";
  if (name.starts_with("linux-vdso")) return 0;  // the kernel's; we compute nothing with it
  std::string id;
  for (int i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE)
      id = build_id_of(reinterpret_cast<const uint8_t*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
  }
  if (id.empty()) {
    // Not its size and time: a compiler run may leave both as they were.
    const auto file = MappedFile::open(name.empty() ? "/proc/self/exe" : name);
    id = file.is_ok() ? digest_of(file->bytes()).text() : unreadable();
  }
  *static_cast<std::string*>(out) += fmt::format("{}={}\n", name, id);
  return 0;
}

template <typename List>
std::string joined(const List& list) {
  std::string out;
  for (const auto& s : list) out += fmt::format("{}:{},", s.size(), s);
  return out;
}

}  // namespace

// Lengths keep neighbours apart.
void KeyBuilder::add(std::string_view name, std::string_view value) {
  text_ += fmt::format("{}={}:{}\n", name, value.size(), value);
}

void KeyBuilder::add(std::string_view name, int64_t value) { add(name, std::string_view(fmt::format("{}", value))); }

// Each structure is taken apart once, so that a new field does not compile before it is thought of here.
void KeyBuilder::add(const Platform& platform) {
  const DeviceInfo& d = platform.device->info();
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
                                f20, f21, f22, f23] = d;
  // Not memory_bytes and free_bytes: they decide sizes, and those are in the key themselves. Nor whether kernels
  // compute, the slots of padding rows, what patches and graphs cost, what captures need, what bf16 and blocks are
  // multiplied with and notes.
  add("device", fmt::format("{}/{}/{}/{}/{}", device_kind_name(d.kind), d.name, d.isa, d.order, d.threads));
  add("abilities", fmt::format("{}/{}/{}/{}/{}/{}", d.host_visible, d.live_sizes, d.asynchronous, d.captures, d.patches,
                               dtype_name(d.index_dtype)));
  const ReadAhead& r = d.read_ahead;
  [[maybe_unused]] const auto& [r1, r2, r3, r4, r5, r6, r7, r8] = r;
  add("read ahead", fmt::format("{}/{}/{}/{}/{}/{}/{}/{}", r.refusal, r.bytes_per_us, r.cached_bytes_per_us,
                                r.launch_us, r.collective_us, r.delay_us, r.mark_us, r.cache_bytes));
  for (const OpSchema* op : platform.ops->all()) add("op", op->decl);
  for (auto& e : platform.extensions) add(e->path(), e->text());
  for (const auto& e : platform.kernels->entries())
    add(e->name,
        fmt::format("{}/{}/{}/{}/{}/{}/{}/{}", e->op, device_kind_name(e->device), e->score, dtype_name(e->index_dtype),
                    e->workspace != nullptr, e->starts != nullptr, e->part[1] != nullptr, joined(e->param_layouts)));
}

void KeyBuilder::add(const PipelineOptions& options) {
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = options;
  const PassOptions& p = options.passes;
  [[maybe_unused]] const auto& [p1, p2, p3, p4, p5, p6, p7, p8, p9, p10] = p;
  // Not print_after, dump_dir, keep_graphs, print and verify_each: they show and check graphs.
  add("passes", joined(p.enable));
  add("disabled", joined(p.disable));
  add("left out", joined(p.leave_out) + p.leave_out_reason);
  add("bisect limit", p.bisect_limit);
  add("greedy", options.greedy);
  add("finite rows", options.finite_rows);
  add("quantisation", options.quantisation ? options.quantisation->text() : "");
  add("observe linears", options.observe_linears);
  add("expand latents", options.expand_latents);
  add("observe experts", options.observe_experts);
  add("sent tokens", options.ranks.sent_tokens);
  add("ranks", fmt::format("{}/{}/{}/{}/{}", options.ranks.rank, options.ranks.size, options.ranks.experts,
                           options.ranks.sequences, options.ranks.reduce));
  for (const std::string_view name :
       {options.part_inputs.slots, options.part_inputs.cu_seqlens, options.part_inputs.part_rows,
        options.part_inputs.own_slots, options.part_inputs.own_cu_seqlens, options.part_inputs.own_rows})
    add("input of a part", name);
  add("lora", fmt::format("{}/{}/{}", options.lora.count, options.lora.rank, options.lora.ids));
  add("streams", options.streams);
  add("prefetch", fmt::format("{}/{}", options.prefetch_bytes, options.prefetch_keys));
  if (options.pass_file) add("pass file", options.pass_file->text);
}

std::string KeyBuilder::build_identity() {
  std::string out;
  ::dl_iterate_phdr(add_object, &out);
  return out;
}

}  // namespace reprise
