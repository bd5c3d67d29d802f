#!/usr/bin/env python3
"""Attention in double by torch, and where each of the vendor's layouts keeps its numbers, for tests of the Ascend simulator.

Layouts as the page of aclnnFusedInferAttentionScoreV2 defines them (hiascend.com, CANN 8.1.RC1, API/aolapi/context; parameters `inputLayout`,
`actualSeqLengths`, `sparseMode`, and its paged-attention section): B batch, S tokens of a request, N heads, D width of a head, H = N x D, T all tokens of
the batch one behind the other with cumulative lengths; a name with two parts gives the layout of the inputs and that of the output; page pools are
(blocknum, blocksize, H), (blocknum, KV_N, blocksize, D) or (blocknum, KV_N, D/16, blocksize, 16). Sparse mode 3 is the causal mask whose last query sees
the last key. Strides come from torch's permute() of a contiguous tensor. Writes tests/data/attention_layouts.json.
"""

import torch
import torch.nn.functional as F

from common import DATA, write_json

B, S, KV, N, G, D, PAGE = 2, 3, 18, 4, 2, 32, 128
LENGTHS, KV_LENGTHS = [2, 1, 3], [18, 7, 3]


def strides(shape, to_logical):
    """Of a contiguous tensor of `shape`, seen in logical order."""
    return list(torch.empty(shape).permute(to_logical).stride())


def bsnd(layout, tokens, heads):
    """Shape as the operator is given it, and strides by [b][s][n][d]."""
    if layout == "BSH":
        return [B, tokens, heads * D], strides([B, tokens, heads, D], [0, 1, 2, 3])
    if layout == "BSND":
        return [B, tokens, heads, D], strides([B, tokens, heads, D], [0, 1, 2, 3])
    if layout == "BNSD":
        return [B, heads, tokens, D], strides([B, heads, tokens, D], [0, 2, 1, 3])
    if layout == "TND":
        return [B * tokens, heads, D], strides([B, tokens, heads, D], [0, 1, 2, 3])
    assert layout == "NTD"
    return [heads, B * tokens, D], strides([heads, B, tokens, D], [1, 2, 0, 3])


def pool(kind, blocks):
    """Shape, and strides by [block][row][n][d / 16][d % 16]."""
    if kind == "BnBsH":
        return [blocks, PAGE, G * D], strides([blocks, PAGE, G, D // 16, 16], [0, 1, 2, 3, 4])
    if kind == "BnNBsD":
        return [blocks, G, PAGE, D], strides([blocks, G, PAGE, D // 16, 16], [0, 2, 1, 3, 4])
    return [blocks, G, D // 16, PAGE, 16], strides([blocks, G, D // 16, PAGE, 16], [0, 3, 1, 2, 4])


def eighths(*shape):
    """Multiples of 1/8 in [-1, 1], which every dtype holds."""
    return torch.randint(-8, 9, shape)


def attention(q, k, v, causal):
    """[s][n][d] of one request, by scaled_dot_product_attention in double."""
    q, k, v = (t.double().transpose(0, 1) / 8 for t in (q, k, v))
    k, v = (t.repeat_interleave(N // G, dim=0) for t in (k, v))
    mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1]) if causal else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(0, 1)


def numbers(t):
    return [float(f"{x:.9g}") for x in t.flatten().tolist()]


def main():
    torch.manual_seed(16)
    q, k, v = eighths(B, S, N, D), eighths(B, KV, G, D), eighths(B, KV, G, D)
    out = torch.stack([attention(q[b], k[b], v[b], False) for b in range(B)])
    layouts = {}
    for name in ("BSH", "BSND", "BNSD", "BNSD_BSND", "TND", "NTD_TND", "TND_NTD"):
        parts = name.split("_")
        shapes = {what: dict(zip(("shape", "strides"), bsnd(part, tokens, heads)))
                  for what, part, tokens, heads in (("query", parts[0], S, N), ("key", parts[0], KV, G), ("out", parts[-1], S, N))}
        layouts[name] = shapes
    per_request = (KV + PAGE - 1) // PAGE
    blocks = B * per_request + 1
    pools = {kind: dict(zip(("shape", "strides"), pool(kind, blocks))) for kind in ("BnBsH", "BnNBsD", "NZ")}
    ragged_q, ragged_k = eighths(sum(LENGTHS), N, D), eighths(sum(KV_LENGTHS), G, D)
    ragged_v = eighths(sum(KV_LENGTHS), G, D)
    parts = zip(ragged_q.split(LENGTHS), ragged_k.split(KV_LENGTHS), ragged_v.split(KV_LENGTHS))
    write_json(DATA / "attention_layouts.json", {
        "made_with": {"torch": torch.__version__.split("+")[0]},
        "sizes": {"B": B, "S": S, "KV": KV, "N": N, "G": G, "D": D, "page": PAGE, "blocks": blocks, "pages": per_request},
        "batch": {"query": q.flatten().tolist(), "key": k.flatten().tolist(), "value": v.flatten().tolist(), "out": numbers(out)},
        "layouts": layouts, "pools": pools,
        "ragged": {"lengths": LENGTHS, "kv_lengths": KV_LENGTHS, "query": ragged_q.flatten().tolist(), "key": ragged_k.flatten().tolist(),
                   "value": ragged_v.flatten().tolist(), "out": numbers(torch.cat([attention(*p, True) for p in parts]))},
    }, indent=None)


if __name__ == "__main__":
    main()
