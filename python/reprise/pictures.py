"""Pictures and videos in messages: what vLLM's and Hugging Face's forms are as parts of OpenAI's chats."""
from __future__ import annotations

import base64
import io

# Parts that PNG holds as they are; others are converted.
MODES = {"1", "L", "LA", "P", "RGB", "RGBA"}


def url_of(picture, where: str) -> str:
    """The data URL of a picture of PIL; a text is a URL already."""
    if isinstance(picture, str):
        return picture
    if not (hasattr(picture, "save") and hasattr(picture, "mode")):
        raise TypeError(f"{where}: a data URL or a picture of PIL is expected, not {type(picture).__name__}")
    held = io.BytesIO()
    (picture if picture.mode in MODES else picture.convert("RGB")).save(held, "PNG")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()


def part_of(part, where: str):
    """(the part in OpenAI's form, whether it shows something)."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("image_pil", "image"):
        name = "image_pil" if kind == "image_pil" else "image"
        return {"type": "image_url", "image_url": {"url": url_of(part.get(name), f"{where}.{name}")}}, True
    if kind == "video" and isinstance(part.get("video"), (list, tuple)):
        frames = [url_of(f, f"{where}.video[{i}]") for i, f in enumerate(part["video"])]
        return {**part, "video": frames}, True
    return part, kind in ("image_url", "video_url", "video")


def shown(messages) -> tuple:
    """(the messages, whether one shows a picture or a video)."""
    out, shows = [], False
    for i, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, (list, tuple)):
            made = [part_of(part, f"messages[{i}].content[{k}]") for k, part in enumerate(content)]
            message = {**message, "content": [part for part, _ in made]}
            shows = shows or any(flag for _, flag in made)
        out.append(message)
    return out, shows
