#include "ops/args/attention.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {
namespace {

// The query is operand 0; the page table operand i.
void fill_step(const OpCall& c, size_t i, auto& a) {
  const Shape &q = c.in[0].shape, &table = c.in[i].shape;
  a.tokens = q[0];
  a.heads = q[1].factor;
  a.sequences = table[0];
  a.columns = table[1];
  a.scale = c.attrs->number("scale");
}

Status accepts_paged(const OpCall& c) {
  if (c.attrs->integer("window") < 0)
    return error(Code::Unsupported, "window {} is negative", c.attrs->integer("window"));
  return constant_rows(c);
}

}  // namespace

Status want_no_softcap(const OpCall& c) {
  if (c.attrs->number("softcap") > 0)
    return error(Code::Unsupported, "scores under a cap of {}: its kernels know none", c.attrs->number("softcap"));
  return Status::ok();
}

Status want_no_chunk(const OpCall& c) {
  if (const int64_t chunk = c.attrs->integer("chunk"); chunk > 0)
    return error(Code::Unsupported, "attention in chunks of {} tokens: its kernels know none", chunk);
  return Status::ok();
}

Status want_no_sinks(const OpCall& c) {
  if (c.in.size() > 5) return error(Code::Unsupported, "attention with sinks: its kernels know none");
  return Status::ok();
}

void PagedAttentionArgs::fill(const OpCall& c) {
  fill_step(c, 2, *this);
  kv_heads = c.in[1].shape[2].factor;
  size = c.in[0].shape[2].factor;
  window = c.attrs->integer("window");
  chunk = c.attrs->integer("chunk");
  softcap = c.attrs->number("softcap");
}
void PagedAttentionRowsArgs::fill(const OpCall& c) {
  fill_step(c, 3, *this);
  pages = c.in[1].shape[0];
  size = c.in[0].shape[2].factor;
  kv_heads = c.in[1].shape[2].factor / size;
  window = c.attrs->integer("window");
  type = c.in[0].dtype;
}
void LatentAttentionArgs::fill(const OpCall& c) {
  fill_step(c, 4, *this);
  pages = c.in[2].shape[0];
  latent = c.in[0].shape[2].factor;
  rope = c.in[1].shape[2].factor;
  type = c.in[0].dtype;
}
void ExpandedLatentArgs::fill(const OpCall& c) {
  fill_step(c, 7, *this);
  latent = c.in[3].shape[2].factor;
  rope = c.in[2].shape[2].factor;
  nope = c.in[1].shape[2].factor;
  value = c.in[0].shape[2].factor;
}
void LatentFormsArgs::fill(const OpCall& c) {
  tokens = c.in[0].shape[0];
  sequences = c.in[1].shape[0];
  latent = c.attrs->integer("latent");
  nope = c.attrs->integer("nope");
  value = c.attrs->integer("value");
}

std::span<const OpArgs> attention_args() {
  static const OpArgs rows[] = {
      op_row("paged_attention", &PagedAttentionArgs::out, &PagedAttentionArgs::q, &PagedAttentionArgs::kv,
             accepts_paged),
      op_row("paged_attention_rows", &PagedAttentionRowsArgs::out, &PagedAttentionRowsArgs::q),
      op_row("latent_attention", &LatentAttentionArgs::out, &LatentAttentionArgs::q),
      op_row("expanded_latent_attention", &ExpandedLatentArgs::same, &ExpandedLatentArgs::q),
      op_row("latent_forms", &LatentFormsArgs::expanded, &LatentFormsArgs::slots),
  };
  return rows;
}

}  // namespace reprise
