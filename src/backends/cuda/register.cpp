#include "backends/cuda/register.h"

namespace reprise::cuda {

void register_cuda(KernelRegistry& kernels, const KernelTable& table) {
  register_elements(kernels, table);
  register_norms(kernels, table);
  register_products(kernels, table);
  register_attention(kernels, table);
  register_quantised(kernels, table);
  register_experts(kernels, table);
  register_latent(kernels, table);
}

void add_entry(KernelRegistry& kernels, std::string_view op, std::string_view types, Accepts accepts, Bind bind,
               CudaKernel kernel, Workspace workspace) {
  if (!kernel) return;
  KernelEntry e;
  e.name = fmt::format("cuda.{}{}{}", op, types.empty() ? "" : ".", types);
  e.op = op;
  e.device = DeviceKind::Cuda;
  e.score = 100;
  e.accepts = accepts;
  e.bind = bind;
  if (workspace) e.workspace = workspace;
  e.phase[0] = opaque(kernel);
  kernels.add(std::move(e));
}

Status want_type(const OpCall& c, size_t i, DType type) {
  if (c.in[i].dtype == type) return Status::ok();
  return error(Code::Unsupported, "takes {}, not {}", dtype_name(type), describe(c));
}

Status want_constant_rows(const OpCall& c, size_t i) {
  const Shape& s = c.in[i].shape;
  for (int d = 1; d < s.rank(); ++d)
    if (!s[d].is_constant()) return error(Code::Unsupported, "size {} of {} is not a constant", d, describe(c));
  return Status::ok();
}

Dim product_of(const Shape& s, int from, int to) {
  Dim n(1);
  for (int i = from; i < to; ++i) {
    n.factor *= s[i].factor;
    if (s[i].symbol != 0) n.symbol = s[i].symbol;
  }
  return n;
}

}  // namespace reprise::cuda
