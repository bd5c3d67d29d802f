#!/usr/bin/env python3
"""Videos as frames: what HF transformers makes of them with the tiny models of make_vision.py, in fp32.

    REPRISE_TRANSFORMERS4=FOLDER make_video.py

Writes tests/data/vision/<name>/video.safetensors, video_answers.json, the text side of qwen2_5_vl, and tests/data/videos.
Positions are those of transformers 4 (`pip install --no-deps --target FOLDER transformers==4.57.3 'huggingface_hub<1.0'
'tokenizers<0.23'`): version 5 lets text go on behind the longer side of a video's frames, whatever time they take. So are
the places of frames of Qwen3-VL: version 5 leaves the marks around them twice. Positions in time (times.json) are those
of version 5, which multiplies the seconds of a pair as they are; version 4 cuts them to an integer first, and the
prompts here have pairs of whole seconds, where both agree. Needs pillow and torchvision besides
requirements.txt.
"""

import json
import os
import shutil
import subprocess
import sys

from common import DATA, write_json
from make_vision_answers import MARKS, RULES, TEMPLATE

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration, Qwen3_5ForConditionalGeneration, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as smart_resize_video

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

OUT, CLIP = DATA / "vision", DATA / "videos" / "clip"
VIDEO, IMAGE, START, END, LAST = 146, 147, 148, 149, 2
MODELS = {"qwen2_5_vl": Qwen2_5_VLForConditionalGeneration, "qwen3_vl": Qwen3VLForConditionalGeneration}
# Its positions are those of Qwen3-VL (modular_qwen3_5.py inherits get_rope_index); transformers 4 does not have it.
WITHOUT_ANSWERS = {"qwen3_5_vl": Qwen3_5ForConditionalGeneration}
POSITIONS4 = """
import json, sys, types, torch
from transformers.models.{module}.modeling_{module} import {cls}
job = json.load(sys.stdin)
space = types.SimpleNamespace(**dict(job["config"], vision_config=types.SimpleNamespace(**job["config"]["vision_config"])))
grid = lambda name: torch.tensor(job[name]) if job[name] else None
more = {{"second_per_grid_ts": job["seconds"]}} if "2_5" in "{module}" else {{}}
at, _ = {cls}.get_rope_index(types.SimpleNamespace(config=space), torch.tensor([job["ids"]]), image_grid_thw=grid("images"), video_grid_thw=grid("videos"), **more)
json.dump(at[:, 0].tolist(), sys.stdout)
"""


def positions4(name, config, ids, images, videos, seconds):
    module, cls = (("qwen2_5_vl", "Qwen2_5_VLModel") if name == "qwen2_5_vl" else ("qwen3_vl", "Qwen3VLModel"))
    vision = dict(spatial_merge_size=2, tokens_per_second=getattr(config.vision_config, "tokens_per_second", None))
    job = dict(ids=ids, images=images, videos=videos, seconds=seconds,
               config=dict(image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_config=vision))
    done = subprocess.run([sys.executable, "-c", POSITIONS4.format(module=module, cls=cls)], input=json.dumps(job), text=True, check=True,
                          stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=os.environ["REPRISE_TRANSFORMERS4"]))
    return torch.tensor(json.loads(done.stdout))


def forward(net, name, ids, images, videos, pixels, pixels_videos, seconds):
    at = positions4(name, net.config, ids, images, videos, seconds)
    more = dict(pixel_values=pixels, image_grid_thw=torch.tensor(images)) if images else {}
    kinds = torch.tensor([[2 if t == VIDEO else 1 if t == IMAGE else 0 for t in ids]])
    with torch.no_grad():
        out = net(input_ids=torch.tensor([ids]), position_ids=at[:, None], mm_token_type_ids=kinds, pixel_values_videos=pixels_videos,
                  video_grid_thw=torch.tensor(videos), **more)
    return out.logits[0].float(), at


def golden_of(name, net):
    """A video of three parts, text, an image: the parts apart, positions and logits."""
    rng = np.random.default_rng(17)
    text = lambda n: [int(x) for x in rng.integers(3, 140, n)]
    told = name != "qwen2_5_vl"
    grid, still, seconds = [3, 4, 6], [1, 4, 4], 1.0
    rows = grid[1] * grid[2] // 4
    ids, parts = text(5), []
    interval = 0 if told else net.config.vision_config.tokens_per_second * seconds
    ids += [] if told else [START]
    for k in range(grid[0]):
        ids += text(3) + [START] if told else []
        parts.append([len(ids), grid[1], grid[2], int(not told and k > 0), int(k * interval)])
        ids += [VIDEO] * rows + ([END] if told else [])
    ids += ([] if told else [END]) + text(6) + [START]
    parts.append([len(ids), *still[1:], 0, 0])
    ids += [IMAGE] * (still[1] * still[2] // 4) + [END] + text(7)
    count = [grid[1] * grid[2]] * grid[0] + [still[1] * still[2]]
    patches = [rng.normal(0, 1, (n, 96)).astype(np.float32) for n in count]
    three = patches[-1].reshape(-1, 3, 2, 16)
    three[:, :, 1] = three[:, :, 0]  # an image is its frame twice
    logits, at = forward(net, name, ids, [still], [grid], torch.tensor(patches[-1]), torch.tensor(np.concatenate(patches[:-1])), [seconds])
    out = {"tokens": np.asarray(ids, np.int32), "parts": np.asarray(parts, np.int32), "positions": at.T.numpy().astype(np.int32), "logits": logits.numpy()}
    with torch.no_grad():
        whole = net.model.visual(torch.tensor(np.concatenate(patches[:-1])), grid_thw=torch.tensor([grid]))
        alone = net.model.visual(torch.tensor(patches[-1]), grid_thw=torch.tensor([still]))
    deep = [list(getattr(o, "deepstack_features", None) or []) for o in (whole, alone)]
    for i, p in enumerate(patches):
        video = i < grid[0]
        cut = slice(i * rows, (i + 1) * rows) if video else slice(None)
        out[f"patches.{i}"] = p
        out[f"rows.{i}"] = (whole if video else alone).pooler_output.numpy()[cut]
        for k, d in enumerate(deep[0 if video else 1]):
            out[f"deep.{i}.{k}"] = d.numpy()[cut]
    return out


def clip():
    """Five frames of waves that move, in a size that the rules keep."""
    shutil.rmtree(CLIP.parent, ignore_errors=True)
    CLIP.mkdir(parents=True)
    y, x = np.mgrid[0:24, 0:40]
    frames = []
    for k in range(5):
        waves = [128 + 110 * np.sin(x * 0.2 + y * 0.1 * (c + 1) + 0.9 * k + c) for c in range(3)]
        frames.append(np.clip(np.stack(waves, -1), 0, 255).astype(np.uint8))
        Image.fromarray(frames[-1]).save(CLIP / f"{k}.png")
    return frames


VIDEO_RULES = dict(RULES, size={"shortest_edge": 256, "longest_edge": 8000})


def processors():
    return {"qwen2_5_vl": Qwen2VLVideoProcessor(**VIDEO_RULES), "qwen3_vl": Qwen3VLVideoProcessor(**VIDEO_RULES)}


def cut(processor, frames):
    video = torch.tensor(np.stack(frames)).permute(0, 3, 1, 2)
    made = processor(videos=[video], do_sample_frames=False, cap_pixels_per_frame=False, return_tensors="pt")
    return made["pixel_values_videos"], made["video_grid_thw"][0].tolist()


def answer(name, net, tokenizer, processor, frames, fps, content):
    """Greedy, each token from the whole prompt anew."""
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True)
    pixels, grid = cut(processor, frames)
    seconds = 2 / fps
    pads = MARKS[VIDEO] * (grid[1] * grid[2] // 4)
    if name == "qwen3_vl":
        at = [i / fps for i in range(len(frames))]
        at += at[-1:] * (len(at) % 2)
        framed = MARKS[START] + MARKS[VIDEO] + MARKS[END]
        prompt = prompt.replace(framed, "".join(f"<{(a + b) / 2:.1f} seconds>{MARKS[START]}{pads}{MARKS[END]}" for a, b in zip(at[::2], at[1::2])))
    else:
        prompt = prompt.replace(MARKS[VIDEO], pads * grid[0])
    ids = tokenizer(prompt)["input_ids"]
    said, logprobs, size = [], [], len(ids)
    for _ in range(8):
        logits = forward(net, name, ids, [], [grid], None, pixels, [seconds])[0][-1]
        best = logits.topk(2).values
        assert float(best[0] - best[1]) > 1e-2, "a tie: take other words"
        said.append(int(logits.argmax()))
        logprobs.append(round(float(logits.log_softmax(-1)[said[-1]]), 6))
        ids.append(said[-1])
        if said[-1] == LAST:
            break
    return dict(content=content, fps=fps, prompt_tokens=size, tokens=said, logprobs=logprobs)


def write_sizes():
    """Sizes of frames, and frames that are resized."""
    rng = np.random.default_rng(5)
    sizes = []
    for _ in range(300):
        t, h, w = int(rng.integers(2, 60)), *(int(x) for x in np.exp(rng.uniform(0, 7, 2)))
        factor, least, most = ((32, 4096, 25165824), (32, 128 * 1024, 768 * 1024), (8, 256, 8000))[int(rng.integers(3))]
        try:
            sizes.append([t, h, w, factor, least, most, *smart_resize_video(t, h, w, 2, factor, least, most)])
        except ValueError:
            sizes.append([t, h, w, factor, least, most])
    write_json(DATA / "videos" / "smart_resize.json", sizes, indent=None)
    golden = {}
    for i, (count, high, wide) in enumerate([(4, 31, 45), (3, 90, 70), (2, 5, 9)]):
        y, x = np.mgrid[0:high, 0:wide]
        frames = [np.stack([128 + 100 * np.sin(x * 0.2 + y * 0.15 + k + c) for c in range(3)], -1).astype(np.uint8) for k in range(count)]
        golden[f"frames.{i}"] = np.stack(frames)
        for name, processor in processors().items():
            pixels, grid = cut(processor, frames)
            golden[f"{name}.{i}"], golden[f"{name}.grid.{i}"] = pixels.numpy(), np.asarray(grid, np.int32)
    save_file({k: np.ascontiguousarray(v) for k, v in sorted(golden.items())}, DATA / "videos" / "golden.safetensors")
    times = []
    for fps, rate, count in [(2, 2, 9), (3, 2, 30), (0.7, 4, 20), (24, 2, 50), (1, 25, 3)]:
        at = Qwen2_5_VLModel.get_vision_position_ids(None, 0, torch.tensor([count, 2, 2]), 1, 2, rate * (2 / fps))
        times.append([fps, rate, at[0].tolist()])
    write_json(DATA / "videos" / "times.json", times, indent=None)


def main():
    frames = clip()
    write_sizes()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(OUT / "qwen3_vl" / "tokenizer.json"), eos_token=MARKS[LAST], chat_template=TEMPLATE)
    for name, cls in {**MODELS, **WITHOUT_ANSWERS}.items():
        folder = OUT / name
        net = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        save_file({k: np.ascontiguousarray(v) for k, v in sorted(golden_of(name, net).items())}, folder / "video.safetensors")
        if name in WITHOUT_ANSWERS:
            continue
        if name != "qwen3_vl":
            for file in ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"):
                shutil.copy(OUT / "qwen3_vl" / file, folder / file)
        write_json(folder / "video_preprocessor_config.json", VIDEO_RULES)
        found = [answer(name, net, tokenizer, processors()[name], frames, fps, [{"type": "text", "text": "see "}, {"type": "video"}, {"type": "text", "text": words}])
                 for fps, words in ((2, " what moves?"), (0.5, " and now?"))]
        (folder / "video_answers.json").write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
        for a in found:
            print(name, a["prompt_tokens"], a["tokens"], tokenizer.decode(a["tokens"]))


main()
