#include "passes/extension.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "device/thunk.h"
#include "passes/extension_api.h"
#include "passes/pass_file.h"

namespace reprise {
namespace {

// Kernels are called with the house's structures by reference, and written against those of the API by pointer: the
// same bytes at the same places. What the house has behind those, kernels of extensions do not see.
static_assert(sizeof(reprise_dim) == sizeof(Dim) && offsetof(reprise_dim, symbol) == offsetof(Dim, symbol));
static_assert(sizeof(reprise_args) <= sizeof(LaunchArgs) && offsetof(reprise_args, dim) == offsetof(LaunchArgs, dim) &&
              offsetof(reprise_args, scalar) == offsetof(LaunchArgs, scalar) &&
              offsetof(reprise_args, workspace) == offsetof(LaunchArgs, workspace));
static_assert(sizeof(LiveSizes) == sizeof(int64_t) * kMaxSymbols);
static_assert(std::extent_v<decltype(reprise_tensor::size)> == Shape::kMaxRank);
static_assert(std::extent_v<decltype(reprise_kernel::phase)> == std::tuple_size_v<decltype(KernelEntry::part)>);
static_assert(REPRISE_F32 == static_cast<int>(DType::F32) && REPRISE_I64 == static_cast<int>(DType::I64) &&
              REPRISE_I16 == static_cast<int>(DType::I16));
static_assert(std::is_same_v<std::variant_alternative_t<REPRISE_STR, AttrValue>, std::string> &&
              std::is_same_v<std::variant_alternative_t<REPRISE_FLOATS, AttrValue>, std::vector<double>>);

// A call in the API's words; lives as long as the function that is called with it.
class Call {
 public:
  explicit Call(const OpCall& c) {
    for (const TensorType& t : c.in) in_.push_back(tensor(t));
    for (const TensorType& t : c.out) out_.push_back(tensor(t));
    for (auto& [name, value] : c.attrs->entries()) attrs_.push_back(attr(name, value));
    call_ = {c.op->name.c_str(), size(in_), size(out_), size(attrs_), in_.data(), out_.data(), attrs_.data()};
  }
  const reprise_call* get() const { return &call_; }

 private:
  template <typename List>
  static int32_t size(const List& list) {
    return static_cast<int32_t>(list.size());
  }
  static reprise_tensor tensor(const TensorType& t) {
    reprise_tensor out{};
    out.dtype = static_cast<int32_t>(t.dtype);
    out.rank = t.shape.rank();
    for (int i = 0; i < t.shape.rank(); ++i) out.size[i] = {t.shape[i].factor, t.shape[i].symbol};
    return out;
  }
  static reprise_attr attr(const std::string& name, const AttrValue& value) {
    reprise_attr out{};
    out.name = name.c_str();
    out.kind = static_cast<int32_t>(value.index());
    if (auto* i = std::get_if<int64_t>(&value)) out.integer = *i;
    if (auto* d = std::get_if<double>(&value)) out.number = *d;
    if (auto* s = std::get_if<std::string>(&value)) out.text = s->c_str();
    if (auto* n = std::get_if<std::vector<double>>(&value)) {
      out.numbers = n->data();
      out.count = size(*n);
    }
    return out;
  }

  std::vector<reprise_tensor> in_, out_;
  std::vector<reprise_attr> attrs_;
  reprise_call call_{};
};

// Whether the device's kernels are called with the arguments of the C interface, by position and threads.
bool takes_c_arguments(DeviceKind kind) { return kind == DeviceKind::Cpu || kind == DeviceKind::Null; }

Result<KernelEntry> entry_from(const reprise_kernel& k, const Platform& platform) {
  for (const char* text : {k.name, k.op, k.device})
    if (!text || !*text) return invalid("a kernel without a name, op or device");
  const std::string name = k.name;
  if (platform.kernels->find(name)) return invalid("kernel \"{}\" exists already", name);
  if (!platform.ops->find(k.op)) return invalid("kernel \"{}\": no op is named \"{}\"", name, k.op);
  if (!k.accepts || !k.bind || !k.phase[0]) return invalid("kernel \"{}\" lacks accepts, bind or phase[0]", name);
  if (k.index_dtype != 0 && k.index_dtype != REPRISE_I32 && k.index_dtype != REPRISE_I64)
    return invalid("kernel \"{}\": index_dtype {} is not known; allowed: REPRISE_I32, REPRISE_I64", name,
                   k.index_dtype);
  KernelEntry e;
  e.name = name;
  e.op = k.op;
  auto kind = parse_device_kind(k.device);
  if (!kind.is_ok()) return kind.status().at(name);
  e.device = *kind;
  // A kernel of another device than the platform's is kept and never launched.
  if (e.device == platform.device->info().kind && !takes_c_arguments(e.device) && !platform.kernels->foreign(e.device))
    return error(Code::Unsupported,
                 "kernel \"{}\": the device {} takes no kernels of extensions; allowed: cpu, cuda, null", name,
                 k.device);
  e.score = k.score;
  e.index_dtype = k.index_dtype == REPRISE_I64 ? DType::I64 : DType::I32;
  e.accepts = [accepts = k.accepts](const OpCall& c) {
    const char* reason = accepts(Call(c).get());
    return reason ? error(Code::Unsupported, "{}", reason) : Status::ok();
  };
  e.bind = [bind = k.bind](const OpCall& c, LaunchArgs& args) {
    bind(Call(c).get(), reinterpret_cast<reprise_args*>(&args));
  };
  if (k.workspace)
    e.workspace = [workspace = k.workspace](const OpCall& c, const LiveSizes& bound, int threads) -> Result<size_t> {
      return workspace(Call(c).get(), bound.value.data(), threads);
    };
  for (size_t i = 0; i < e.part.size(); ++i) e.part[i] = k.phase[i];
  const OpaqueKernel caller = platform.kernels->foreign(e.device);
  if (!caller) return e;
  const auto parts = std::make_shared<const ForeignParts>(e.part);
  e.part = {caller};
  e.bind = [bind = k.bind, parts](const OpCall& c, LaunchArgs& args) {
    bind(Call(c).get(), reinterpret_cast<reprise_args*>(&args));
    args.constant = parts.get();
  };
  return e;
}

// dlerror() starts with the path, which the message names anyway.
std::string loader_error(const std::string& path) {
  const char* text = ::dlerror();
  std::string_view said = text ? text : "unknown error";
  if (said.starts_with(path)) said.remove_prefix(path.size());
  said.remove_prefix(std::min(said.find_first_not_of(": "), said.size()));
  return std::string(said);
}

}  // namespace

Extension::~Extension() { ::dlclose(library_); }

class ExtensionLoader {
 public:
  explicit ExtensionLoader(Platform& platform) : platform_(platform) {}

  Status load(const std::string& path) {
    for (auto& other : platform_.extensions)
      if (other->path() == path) return invalid("it is loaded already");
    // A name without a slash would be looked for among the system's libraries.
    const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return invalid("not a library that can be loaded: {}", loader_error(file));
    extension_.reset(new Extension(path, library));
    const auto* abi = static_cast<const uint32_t*>(::dlsym(library, "reprise_extension_abi"));
    const auto run = reinterpret_cast<reprise_register_function>(::dlsym(library, "reprise_extension_register"));
    if (!abi || !run)
      return invalid("not an extension: it does not export {}",
                     abi ? "reprise_extension_register" : "reprise_extension_abi");
    if (*abi != REPRISE_EXTENSION_ABI)
      return invalid(
          "it is written for version {} of the extension interface, this program has version {}; build it again", *abi,
          REPRISE_EXTENSION_ABI);
    nn::register_fused_ops(*platform_.ops);  // so that names are compared with those too
    const reprise_host host{REPRISE_EXTENSION_ABI, this, declare, add_kernel};
    const int code = run(&host);
    RETURN_IF_ERROR(status_);
    if (code != 0) return invalid("reprise_extension_register returned {}", code);
    platform_.extensions.push_back(std::move(extension_));
    return Status::ok();
  }

 private:
  // The first error stays.
  int note(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
    return status_.is_ok() ? 0 : 1;
  }
  Status declare(const char* text) {
    if (!text) return invalid("declare() was called without a text");
    ASSIGN_OR_RETURN(Declarations found, parse_declarations(text, *platform_.ops));
    Extension& e = *extension_;
    e.text_ += text;
    for (nn::FusedOp& op : found.ops) e.ops_.push_back(std::move(op));
    for (Rewrite& r : found.rewrites) e.rewrites_.push_back(std::move(r));
    return Status::ok();
  }
  static int declare(void* context, const char* text) {
    auto& self = *static_cast<ExtensionLoader*>(context);
    return self.note(self.declare(text));
  }
  Status add_kernel(const reprise_kernel* kernel) {
    if (!kernel) return invalid("add_kernel() was called without a kernel");
    ASSIGN_OR_RETURN(KernelEntry entry, entry_from(*kernel, platform_));
    platform_.kernels->add(std::move(entry));
    return Status::ok();
  }
  static int add_kernel(void* context, const reprise_kernel* kernel) {
    auto& self = *static_cast<ExtensionLoader*>(context);
    return self.note(self.add_kernel(kernel));
  }

  Platform& platform_;
  std::unique_ptr<Extension> extension_;
  Status status_;
};

Status load_extension(const std::string& path, Platform& platform) {
  return ExtensionLoader(platform).load(path).at(fmt::format("extension {}", path));
}

}  // namespace reprise
