#!/usr/bin/env python3
"""Small image files of every kind that is read, with what Pillow and the image processors of HF transformers make of them.

    make_images.py

Writes tests/data/images; see the README there. Needs pillow and torchvision besides requirements.txt.
"""

import io
import shutil

from common import DATA, write_json

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from safetensors.numpy import save_file
from transformers.image_transforms import convert_to_rgb
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

transformers.logging.set_verbosity_error()
OUT = DATA / "images"


def picture(width, height, channels, seed):
    """Waves with some noise: a picture that lossy formats keep and filters change."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin(x * rng.uniform(0.1, 0.6) + y * rng.uniform(0.1, 0.6) + c) for c in range(channels)]
    return np.clip(np.stack(waves, -1) + rng.normal(0, 12, (height, width, channels)), 0, 255).astype(np.uint8)


def encoded(image, kind, **more):
    out = io.BytesIO()
    image.save(out, kind, **more)
    return out.getvalue()


def turned(number):
    exif = Image.Exif()
    exif[0x0112] = number
    return exif.tobytes()


def files():
    rgb = Image.fromarray(picture(37, 29, 3, 1))
    rgba = Image.fromarray(picture(23, 31, 4, 2), "RGBA")
    grey = Image.fromarray(picture(19, 21, 1, 3)[:, :, 0], "L")
    out = {
        "rgb.png": encoded(rgb, "PNG"),
        "alpha.png": encoded(rgba, "PNG"),
        "grey.png": encoded(grey, "PNG"),
        "grey_alpha.png": encoded(Image.fromarray(picture(11, 9, 2, 4), "LA"), "PNG"),
        "bits.png": encoded(grey.convert("1"), "PNG"),
        "palette.png": encoded(rgb.quantize(16), "PNG"),
        "palette_clear.png": encoded(rgb.quantize(16), "PNG", transparency=3),
        "turned.png": encoded(rgb, "PNG", exif=turned(6)),
        "rgb.jpeg": encoded(Image.fromarray(picture(45, 33, 3, 5)), "JPEG", quality=80),
        "progressive.jpeg": encoded(rgb, "JPEG", quality=90, progressive=True, subsampling=0),
        "grey.jpeg": encoded(grey, "JPEG"),
        "inks.jpeg": encoded(Image.fromarray(picture(17, 13, 4, 6), "CMYK"), "JPEG", quality=95),
        "rgb.webp": encoded(Image.fromarray(picture(40, 26, 3, 7)), "WEBP", quality=80),
        "alpha.webp": encoded(rgba, "WEBP", lossless=True, exact=True),
        "turned.webp": encoded(rgb, "WEBP", lossless=True, exif=turned(8)),
    }
    for number in range(2, 9):
        out[f"turned_{number}.jpeg"] = encoded(Image.fromarray(picture(14, 9, 3, 8)), "JPEG", exif=turned(number))
    return out


# Sizes (height, width) and rules by which a picture is resized.
RULES = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "size": {"shortest_edge": 16 * 16, "longest_edge": 48 * 40},
         "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
SIZES = [(29, 37), (7, 9), (61, 43), (16, 24), (130, 11), (12, 12)]


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    golden = {}
    for name, data in files().items():
        (OUT / name).write_bytes(data)
        golden[f"rgb.{name}"] = convert_to_rgb(ImageOps.exif_transpose(Image.open(io.BytesIO(data))), return_numpy=True)
    pil, torchvision = Qwen2VLImageProcessorPil(**RULES), Qwen2VLImageProcessor(**RULES)
    for i, (height, width) in enumerate(SIZES):
        pixels = picture(width, height, 3, 50 + i)
        golden[f"image.{i}"] = pixels
        for kind, processor in (("pil", pil), ("torchvision", torchvision)):
            made = processor(images=[Image.fromarray(pixels)], return_tensors="np" if kind == "pil" else "pt")
            golden[f"{kind}.{i}"] = np.asarray(made["pixel_values"], dtype=np.float32)
            golden[f"grid.{i}"] = np.asarray(made["image_grid_thw"], dtype=np.int32)[0]
    save_file({k: np.ascontiguousarray(v) for k, v in sorted(golden.items())}, OUT / "golden.safetensors")
    rng = np.random.default_rng(9)
    sizes = []
    for _ in range(300):
        h, w = (int(x) for x in np.exp(rng.uniform(0, 8, 2)))
        factor, least, most = ((28, 3136, 12845056), (32, 65536, 16777216), (28, 56 * 56, 1280 * 28 * 28))[int(rng.integers(3))]
        try:
            sizes.append([h, w, factor, least, most, *smart_resize(h, w, factor, least, most)])
        except ValueError:
            sizes.append([h, w, factor, least, most])
    write_json(OUT / "smart_resize.json", sizes, indent=None)
    write_json(OUT / "preprocessor_config.json", RULES)


main()
