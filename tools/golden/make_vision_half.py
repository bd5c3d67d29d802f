#!/usr/bin/env python3
"""What HF transformers makes of the prompts of the tiny models with a vision tower in bf16 and fp16.

    make_vision_half.py [NAME ...]

Writes half.safetensors and, for prompts with a video, video_half.safetensors beside the goldens of make_vision.py,
make_video.py and make_mmproj.py, and tests/data/vision/hf_half_error.json: how far HF's own runs in these types are from
its run in fp32. See the README there. Needs pillow besides requirements.txt (make_mmproj.py). Versions: transformers
5.23.0, torch 2.15; no seeds, since all inputs are read.
"""

import json
import sys

from common import DATA, write_json
from make_mmproj import models as gguf_models
from make_vision import IMAGE, made, models

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
transformers.utils.logging.disable_progress_bar()

OUT, REPORT = DATA / "vision", DATA / "vision" / "hf_half_error.json"
VIDEO = 146
ROWS = 16  # the last ones are kept
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def grids_of(golden):
    """Grids of the images and of the video. `parts` has a line for each pair of frames, and then one for an image."""
    if "grids" in golden:
        return [[1, *map(int, g)] for g in golden["grids"]], []
    frames, still = golden["parts"][:-1], golden["parts"][-1]
    return [[1, int(still[1]), int(still[2])]], [[len(frames), int(frames[0][1]), int(frames[0][2])]]


@torch.no_grad()
def logits_of(net, golden):
    images, videos = grids_of(golden)
    ids = torch.from_numpy(golden["tokens"].astype(np.int64))[None]
    patches = [torch.from_numpy(golden[f"patches.{i}"]) for i in range(sum(k.startswith("patches.") for k in golden))]
    cut = len(patches) - len(images)
    more = dict(pixel_values=torch.cat(patches[cut:]), image_grid_thw=torch.tensor(images))
    if videos:
        more |= dict(pixel_values_videos=torch.cat(patches[:cut]), video_grid_thw=torch.tensor(videos))
    kinds = (ids == IMAGE).int() + 2 * (ids == VIDEO).int()
    at = torch.from_numpy(golden["positions"].astype(np.int64)).T[:, None]
    return net(input_ids=ids, position_ids=at, mm_token_type_ids=kinds, **more).logits[0]


def relative(a, b):
    return float((a.float() - b).abs().max() / b.abs().max())


def run(net_of, folder, name, file, report):
    golden = load_file(folder / f"{file}.safetensors")
    want = torch.from_numpy(golden["logits"])
    again = relative(logits_of(net_of(torch.float32), golden), want)
    assert again < 2e-5, (name, "is not the model of its golden", again)
    out, entry = {"positions": torch.arange(len(want) - ROWS, len(want), dtype=torch.int32)}, {}
    for label, dtype in TYPES.items():
        logits = logits_of(net_of(dtype), golden)
        assert logits.dtype == dtype and torch.isfinite(logits).all(), (name, label)
        entry[label] = float(f"{relative(logits, want):.3g}")
        out[f"logits.{label}"] = logits[-ROWS:].contiguous()
    save_file(out, folder / ("half.safetensors" if file == "golden" else f"{file}_half.safetensors"))
    report[name] = entry
    print(f"{name:20s} {entry}", flush=True)


def main():
    only = set(sys.argv[1:])
    report = json.loads(REPORT.read_text())["models"] if REPORT.exists() and only else {}
    for name, cls, _ in models():
        folder = OUT / name
        net_of = lambda dtype: cls.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
        for file in ("golden", "video"):
            key = name if file == "golden" else f"{name}:video"
            if (folder / f"{file}.safetensors").exists() and (not only or key in only):
                run(net_of, folder, key, file, report)
    for seed, (name, _, cls, config) in enumerate(gguf_models()):
        if not only or f"{name}_gguf" in only:
            run(lambda dtype: made(cls, config, 320 + seed, halved=True).to(dtype), OUT / f"{name}_gguf", f"{name}_gguf", "golden", report)
    write_json(REPORT, {"what": "error of HF transformers itself on these models, largest |difference| over largest |logit| against its own fp32 run, "
                                "over all positions", "models": report})


if __name__ == "__main__":
    main()
