#!/usr/bin/env python3
"""Sizes that SGLang captures, made by SGLang's own functions, for tests/engine/graph_sizes_test.cpp.

usage: make_graph_sizes.py CLONE       (a git clone of SGLang with its history)

The functions are cut out of the files of two commits and run: the lists cannot follow our reading of the rule.
2025-12 is the last commit of that month, whose rules Reprise follows; 2026-06 also appends the largest size itself.
Writes tests/data/graph_sizes.json.
"""

import argparse
import ast
import subprocess
import types

from common import DATA, write_json

OLD = "2da49eec50a142d4d4de96e05e587a0e5575057c"  # 2025-12-31
NEW = "bf186cf8fc05b687c9f00e47f283760d2996b244"  # 2026-06-15
ARGS = "python/sglang/srt/server_args.py"
RUNNER = "python/sglang/srt/model_executor/cuda_graph_runner.py"

# Every small size, and those around each border of the rules.
LARGEST = sorted({*range(1, 42), 48, 56, 60, *range(63, 66), 72, 80, 96, 100, 120, *range(127, 130), 160, 200, *range(255, 259),
                  264, *range(271, 274), 288, 300, 384, 400, 500, *range(511, 514), *range(543, 546), 576, 640, 1000, 1024})
TOKENS = [4, 5, 7, 8, 31, 32, 33, 47, 48, 100, 128, 256, 257, 288, 511, 512, 513, 639, 640, 1000, 1024, 2000, 2048, 4095, 4096, 4097, 4351,
          4352, 5000, 8192, 16384]


def function_of(clone, commit, path, name, world):
    """The function as it stands in that commit, without what is around it, and its first line."""
    text = subprocess.run(["git", "-C", clone, "show", f"{commit}:{path}"], check=True, capture_output=True, text=True).stdout
    node = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == name)
    line = node.lineno
    for argument in node.args.args:
        argument.annotation = None
    node.returns = None
    exec(compile(ast.Module([node], []), path, "exec"), world)
    return world[name], f"{path}:{line} ({name})"


def server_args(largest, speculative=None, padding=True, tokens=0):
    return types.SimpleNamespace(
        cuda_graph_max_bs=largest, speculative_algorithm=speculative, disable_cuda_graph_padding=not padding,
        piecewise_cuda_graph_max_tokens=tokens, enable_two_batch_overlap=False, enable_torch_compile=False, torch_compile_max_bs=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone")
    clone = parser.parse_args().clone
    sizes, sizes_at = function_of(clone, OLD, ARGS, "_generate_cuda_graph_batch_sizes", {})
    tokens, tokens_at = function_of(clone, OLD, ARGS, "_generate_piecewise_cuda_graph_tokens", {})
    captured, captured_at = function_of(clone, OLD, RUNNER, "get_batch_sizes_to_capture", {
        "require_gathered_buffer": lambda args: False, "get_attention_tp_size": lambda: 1})
    later, later_at = function_of(clone, NEW, ARGS, "_generate_decode_cuda_graph_batch_sizes", {})

    def captured_with(largest, slots):
        args = server_args(largest)
        args.cuda_graph_bs = sizes(args)
        return captured(types.SimpleNamespace(server_args=args, req_to_token_pool=types.SimpleNamespace(size=slots)))[0]

    forms = {"normal": {}, "speculative": {"speculative": "EAGLE"}, "no_padding": {"padding": False}}
    few = [m for m in LARGEST if m <= 41]
    rows = {
        form: {str(m): sizes(server_args(m, **how)) for m in (few if form == "no_padding" else LARGEST)} for form, how in forms.items()}
    later_rows = {
        form: {str(m): later(server_args(m, **how), m) for m in (few if form == "no_padding" else LARGEST)} for form, how in forms.items()}
    slots = [{"largest": m, "slots": s, "sizes": captured_with(m, s)} for m in (24, 80, 160, 256, 512) for s in (1, 3, 20, 64, 100, 300) if s < m]
    out = {
        "made_by": {"repository": "SGLang", "rule": f"{OLD}:{sizes_at}", "slots": f"{OLD}:{captured_at}", "tokens": f"{OLD}:{tokens_at}",
                    "with_largest": f"{NEW}:{later_at}"},
        "rule": rows, "with_largest": later_rows, "slots": slots, "tokens": {str(n): tokens(server_args(0, tokens=n)) for n in TOKENS}}
    write_json(DATA / "graph_sizes.json", out, indent=None)
    print(f"{len(LARGEST)} largest sizes, {len(slots)} with slots, {len(TOKENS)} token counts")


if __name__ == "__main__":
    main()
