#!/usr/bin/env python3
"""Published chat templates over 200 conversations, rendered by Python jinja2 as HF transformers sets it up.

  make_chat_templates.py            writes tests/data/chat_templates/{templates.json, conversations.json, rendered/*.json}
  make_chat_templates.py --refresh  first takes the templates again from where they are published
  make_chat_templates.py --show NAME INDEX   prints one rendering (only hashes of most are stored)
"""

import datetime
import json
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from common import DATA, fnv1a64, write_json
from smollm2 import SmolLM2

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = DATA / "chat_templates"
NOW = "2025-07-26 14:05:09"
TEXTS = 10
COUNT = 200
TRL = "trl==1.16.0"
# The source distribution has llama.cpp with it, and that the templates that it is tested with (models/templates).
LLAMA_CPP = "llama_cpp_python==0.3.36"
AXOLOTL = "axolotl==0.19.0"
IM = ("", "<|im_end|>")

# name: (where it is from, bos, eos)
TEMPLATES = {
    "smollm2": ("gguf", "<|im_start|>", "<|im_end|>"),
    "qwen3": ("shared", "", "<|im_end|>"),
    "deepseek_v3": ("shared", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "qwen2_5": ("trl", *IM),
    "qwen3_instruct_2507": ("trl", *IM),
    "llama3": ("trl", "<|begin_of_text|>", "<|eot_id|>"),
    "llama3_1": ("trl", "<|begin_of_text|>", "<|eot_id|>"),
    "llama3_2": ("trl", "<|begin_of_text|>", "<|eot_id|>"),
    "gemma": ("trl", "<bos>", "<eos>"),
    "gemma3": ("trl", "<bos>", "<eos>"),
    "phi3": ("trl", "<s>", "<|endoftext|>"),
    "phi3_5": ("trl", "<s>", "<|endoftext|>"),
    "deepseek_r1_distill": ("trl", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "cohere": ("trl", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "glm4moe": ("trl", "", "<|endoftext|>"),
    "lfm2": ("trl", "<|startoftext|>", "<|im_end|>"),
    "gptoss": ("trl", "<|startoftext|>", "<|return|>"),
    "llama2": ("written", "<s>", "</s>"),
    "mistral_v01": ("written", "<s>", "</s>"),
    "mistral_v03": ("written", "<s>", "</s>"),
    "zephyr": ("written", "<s>", "</s>"),
    "chatml": ("written", *IM),
    "deepseek_v2": ("written", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "vicuna": ("written", "<s>", "</s>"),
    "openchat": ("written", "<s>", "<|end_of_turn|>"),
    "phi4": ("written", "<|endoftext|>", "<|im_end|>"),
    "qwen3_vl": ("trl", *IM),
    "cohere2": ("trl", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "exaone4": ("axolotl", "[BOS]", "[|endofturn|]"),
    "smollm3": ("llama.cpp HuggingFaceTB-SmolLM3-3B", "<|begin_of_text|>", "<|im_end|>"),
    "granite3": ("llama.cpp ibm-granite-granite-3.3-2B-Instruct", "<|end_of_text|>", "<|end_of_text|>"),
    "granite4": ("llama.cpp ibm-granite-granite-4.0", "<|end_of_text|>", "<|end_of_text|>"),
    "glm4_7": ("llama.cpp GLM-4.7-Flash", "", "<|endoftext|>"),
    "kimi_k2": ("llama.cpp moonshotai-Kimi-K2", "[BOS]", "<|im_end|>"),
    "minimax_m2": ("llama.cpp MiniMax-M2", "]~!b[", "[e~["),
    "seed_oss": ("llama.cpp ByteDance-Seed-OSS", "<seed:bos>", "<seed:eos>"),
    "hunyuan3": ("written", "<｜hy_begin_of_sentence:opensource｜>", "<｜hy_eos:opensource｜>"),
    "hunyuan_a13b": ("written", "<|startoftext|>", "<|eos|>"),
    "olmo3": ("written", "", "<|im_end|>"),
    "ernie4_5": ("written", "<s>", "</s>"),
    "command_r7b": ("written", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "phi4_mini": ("written", "", "<|endoftext|>"),
    "nemotron_nano2": ("written", "<s>", "<SPECIAL_12>"),
    "mistral_nemo": ("llama.cpp mistralai-Mistral-Nemo-Instruct-2407", "<s>", "</s>"),
    "mistral_small3_2": ("llama.cpp Mistral-Small-3.2-24B-Instruct-2506", "<s>", "</s>"),
    "ministral3": ("llama.cpp mistralai-Ministral-3-14B-Reasoning-2512", "<s>", "</s>"),
    "qwen2_5_vl": ("trl", *IM),
    "qwen3_5": ("llama.cpp Qwen3.5-4B", *IM),
    "qwen3_coder": ("llama.cpp Qwen3-Coder", *IM),
    "nemotron_3_nano": ("trl", "<s>", "<|im_end|>"),
    "glm4_6": ("llama.cpp GLM-4.6", "", "<|endoftext|>"),
    "deepseek_v3_1": ("llama.cpp deepseek-ai-DeepSeek-V3.1", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "llama4": ("axolotl", "<|begin_of_text|>", "<|eot|>"),
    "glm4_0414": ("written", "", "<|endoftext|>"),
    "olmo2": ("written", "<|endoftext|>", "<|endoftext|>"),
    "falcon3": ("written", "", "<|endoftext|>"),
    "internlm3": ("written", "<s>", "<|im_end|>"),
}


def environment():
    """The environment transformers.utils.chat_template_utils makes, with a clock that stands still."""
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromisoformat(NOW).strftime(f)
    return env


def variables(name, conversation):
    _, bos, eos = TEMPLATES[name]
    c = json.loads(json.dumps(conversation))
    return {"messages": c["messages"], "tools": c["tools"], "documents": None, "add_generation_prompt": c["add_generation_prompt"],
            "bos_token": bos, "eos_token": eos, **c["kwargs"]}


def refresh():
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
        subprocess.run([*pip, TRL, AXOLOTL], check=True)
        subprocess.run([*pip, "--no-binary", ":all:", LLAMA_CPP], check=True)
        found = lambda pattern: next(pathlib.Path(folder).glob(pattern))
        with zipfile.ZipFile(found("trl-*.whl")) as wheel, zipfile.ZipFile(found("axolotl-*.whl")) as axolotl, \
                tarfile.open(found("llama_cpp_python-*.tar.gz")) as llama:
            root = llama.getnames()[0].split("/")[0]
            for name, (source, *_) in TEMPLATES.items():
                if source == "trl":
                    text = wheel.read(f"trl/chat_templates/{name}.jinja").decode()
                elif source == "axolotl":
                    text = axolotl.read(f"axolotl/utils/chat_templates/templates/{name}.jinja").decode()
                elif source.startswith("llama.cpp "):
                    file = f"{root}/vendor/llama.cpp/models/templates/{source.split()[1]}.jinja"
                    text = llama.extractfile(file).read().decode()
                elif source == "gguf":
                    text = SmolLM2().chat_template()
                elif source == "shared":
                    text = json.loads((DATA / "tokenizer" / "published" / f"{name}.tokenizer_config.json").read_text())["chat_template"]
                else:
                    continue
                (OUT / "templates" / f"{name}.jinja").write_bytes(text.encode())


USERS = [
    "What is the capital of France?", "Hello!", "  leading and trailing spaces  ", "\n\nnewlines around\n\n", "", " ", "Write a haiku.\nThen explain it.\n", "日本の首都はどこですか？", "Was kostet ein Brötchen? Größe: ½ €", "مرحبا، كيف حالك؟",
    "👩‍💻 emoji 🏳️‍🌈 test", "Quotes: \"double\" 'single' `back` \\backslash\\ /slash/", "<b>html</b> & <|im_end|> <|user|> [INST] {{ braces }} {% tags %}", "tab\there\r\nand CRLF", "def f():\n    return {'a': 1}\n", "3 + 4 * 2 = ?", "e\u0301 combining, \u200bzero width, \u00a0nbsp", "And now in two sentences, please.",
    "x" * 300, "Zeile 1\nZeile 2\n\n\nZeile 5", "<tool_response>\nnot really a tool\n</tool_response>", "What's the weather in Paris and in 東京?", "/nothink Just answer.", "null", "{\"json\": [1, 2.50, null]}", "'", "\"", "\\n literal",
]
ANSWERS = [
    "Paris.", "The capital of France is **Paris**.", " Hi! How can I help? ", "\nSure:\n\n1. one\n2. two\n", "", "東京です。", "```python\nprint('hi')\n```", "<think>\nLet me think.\nYes.\n</think>\n\nThe answer is 11.", "<think>\n\n</think>\n\nOK.", "half a thought</think>Done.", "Grüße 🙂", "It's \"fine\" & <ok>.",
    "a </think> b </think> c", "Tschüss",
]
SYSTEMS = ["You are a helpful assistant.", "", "  Antworte auf Deutsch.\n", "You are a pirate 🏴‍☠️.\nSpeak like one.", "Rules:\n- be brief\n- use \"quotes\"\n- never say {{ x }}", "あなたは親切です。"]
REASONING = ["First, add the numbers.\nThen check.", "\n  indented thought \n", "短い", ""]

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the current weather in a city.", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city, e.g. \"München\""}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds two numbers <a> & <b>.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 0.5}}, "required": ["a", "b"]}, "return": {"type": "number"}}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "book", "description": "Book a trip\nwith several stops", "parameters": {"type": "object", "properties": {"stops": {"type": "array", "items": {"type": "string"}, "description": "Where"}, "options": {"type": "object", "properties": {"meals": {"type": "boolean"}, "class": {"type": "integer", "minimum": 1, "maximum": 3}}}, "price": {"type": ["number", "null"]}, "ids": {"type": "array", "items": {"type": "integer"}}}, "required": ["stops"]}, "strict": True}},
]
ARGUMENTS = {
    "get_weather": [{"city": "Paris", "unit": "celsius"}, {"city": "東京"}, {"city": "Saint-\"Étienne\"\n"}],
    "add": [{"a": 1, "b": 2}, {"a": -0.5, "b": 1e-07}, {"a": 1e22, "b": 123456789012345678}, {"a": 0.1, "b": 2.0}, {"a": 1.7976931348623157e308, "b": 5e-324}, {"a": 100000.0, "b": 1e16}],
    "now": [{}],
    "book": [{"stops": ["Köln", "A'dam", ""], "options": {"meals": True, "class": 2, "nested": {"deep": [[], {}, [1, [2, [3]]], None, False]}}, "price": None}, {"stops": [], "ids": [1, 2, 3]}],
}
RESULTS = ["{\"temperature\": 21.5, \"unit\": \"celsius\"}", "3", "2025-07-26T14:05:09", "error: \"not found\"", "晴れ、25度", "", "line 1\nline 2"]


def conversations():
    r = random.Random(424242)
    out = []

    def call(i, as_text):
        tool = r.choice(TOOLS)["function"]["name"]
        arguments = r.choice(ARGUMENTS[tool])
        c = {"id": f"call{i:05d}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments}}
        if r.random() < 0.1:
            del c["id"]
        return c

    def chat(index):
        messages = []
        if r.random() < 0.45:
            messages.append({"role": "system", "content": r.choice(SYSTEMS)})
        with_tools = index % 3 == 2
        as_text = r.random() < 0.35  # OpenAI's arguments are JSON text, many templates want an object
        turns = r.choice([1, 1, 1, 2, 2, 3, 4])
        for turn in range(turns):
            messages.append({"role": "user", "content": r.choice(USERS)})
            if with_tools and r.random() < 0.6:
                calls = [call(len(messages) * 10 + k, as_text) for k in range(r.choice([1, 1, 1, 2, 3]))]
                content = r.choice(["", None, "Let me check.", "<think>\nA tool.\n</think>\n\nOne moment."])
                message = {"role": "assistant", "content": content, "tool_calls": calls}
                if r.random() < 0.2:
                    message["reasoning_content"] = r.choice(REASONING)
                messages.append(message)
                for c in calls:
                    messages.append({"role": "tool", "name": c["function"]["name"], **({"tool_call_id": c["id"]} if "id" in c else {}), "content": r.choice(RESULTS)})
                if turn == turns - 1 and r.random() < 0.5:
                    break
                messages.append({"role": "assistant", "content": r.choice(ANSWERS)})
            elif turn < turns - 1 or r.random() < 0.25:
                message = {"role": "assistant", "content": r.choice(ANSWERS)}
                if r.random() < 0.2:
                    message["reasoning_content"] = r.choice(REASONING)
                messages.append(message)
        kwargs = {}
        if r.random() < 0.4:
            kwargs["enable_thinking"] = r.random() < 0.5
        if r.random() < 0.1:
            kwargs["date_string"] = "1 Jan 2025"
        if r.random() < 0.1:
            kwargs["tools_in_user_message"] = False
        if r.random() < 0.1:
            kwargs["reasoning_effort"] = r.choice(["low", "high"])
        tools = r.sample(TOOLS, r.randint(1, len(TOOLS))) if with_tools or r.random() < 0.05 else None
        return {"messages": messages, "tools": tools, "add_generation_prompt": r.random() < 0.7, "kwargs": kwargs}

    user = lambda c: {"role": "user", "content": c}
    system = lambda c: {"role": "system", "content": c}
    assistant = lambda c: {"role": "assistant", "content": c}
    plain = lambda *m, prompt=True, **kw: {"messages": list(m), "tools": None, "add_generation_prompt": prompt, "kwargs": kw}
    out += [
        plain(user(USERS[0])),
        plain(system(SYSTEMS[0]), user("Hello!")),
        plain(user("Hi"), assistant("Hello."), user("Bye")),
        plain(user("Hi"), assistant("Hello."), prompt=False),
        plain(user(USERS[0]), enable_thinking=False),
        plain(user("2+2?"), assistant(ANSWERS[7]), user("And 3+3?"), enable_thinking=True),
        {**plain(user("Weather in Paris?")), "tools": TOOLS[:2]},
        {**plain(system(SYSTEMS[3]), user("Weather?"), {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]},
                 {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": RESULTS[0]}), "tools": TOOLS[:1]},
        plain(user("")),
        plain(system("  "), user(" spaced "), assistant("\n x \n"), user("日本")),
        # 10 and on: ill-formed or unusual ones
        plain(assistant("I speak first."), user("Oh.")),
        plain(user("one"), user("two")),
        plain(system("a"), system("b"), user("c")),
        plain(system("only a system message")),
        plain(user("x"), {"role": "narrator", "content": "A new role."}),
        plain({"role": "user", "content": [{"type": "text", "text": "typed part"}, {"type": "image"}, {"type": "text", "text": " two "}]}),
        plain(user("q"), {"role": "assistant", "content": "a", "reasoning_content": "because\n"}, prompt=False),
        plain(),
        plain(user(None)),
        plain({"role": "user"}),
    ]
    while len(out) < COUNT:
        out.append(chat(len(out)))
    return out


def render(env, compiled, name, conversation):
    try:
        return {"text": compiled.render(**variables(name, conversation))}
    except jinja2.exceptions.TemplateError as e:
        kind = type(e).__name__
        return {"raises": str(e), "kind": "raise_exception" if kind == "TemplateError" else kind}
    except (TypeError, AttributeError, KeyError, ValueError, IndexError) as e:
        return {"raises": str(e), "kind": type(e).__name__}


def main():
    if "--refresh" in sys.argv:
        (OUT / "templates").mkdir(parents=True, exist_ok=True)
        refresh()
    env = environment()
    chats = conversations()
    compiled = {n: env.from_string((OUT / "templates" / f"{n}.jinja").read_bytes().decode()) for n in TEMPLATES}
    if "--show" in sys.argv:
        name, index = sys.argv[-2], int(sys.argv[-1])
        print(json.dumps(chats[index], ensure_ascii=False), file=sys.stderr)
        print(render(env, compiled[name], name, chats[index]))
        return
    write_json(OUT / "templates.json", [{"name": n, "file": f"templates/{n}.jinja", "source": s, "bos_token": b, "eos_token": e} for n, (s, b, e) in TEMPLATES.items()])
    with open(OUT / "conversations.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in chats) + "\n]\n")

    from transformers.utils.chat_template_utils import render_jinja_template

    compared = 0
    for name in TEMPLATES:
        results, raised = [], 0
        source = (OUT / "templates" / f"{name}.jinja").read_bytes().decode()
        for index, chat in enumerate(chats):
            result = render(env, compiled[name], name, chat)
            # where nothing depends on the clock or on renamed fields, transformers itself must agree
            if "text" in result and "strftime_now" not in source and not any("reasoning_content" in m for m in chat["messages"]):
                v = variables(name, chat)
                by_hf = render_jinja_template([v.pop("messages")], chat_template=source, **v)[0][0]
                assert by_hf == result["text"], (name, index)
                compared += 1
            if "raises" in result:
                raised += 1
            elif index >= TEXTS:
                raw = result["text"].encode()
                result = {"bytes": len(raw), "fnv1a64": f"{fnv1a64(raw):016x}"}
            results.append(result)
        (OUT / "rendered").mkdir(parents=True, exist_ok=True)
        with open(OUT / "rendered" / f"{name}.json", "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in results) + "\n]\n")
        print(f"{name:22s} {COUNT - raised} rendered, {raised} raise: {sorted({x['kind'] for x in results if 'raises' in x})}", flush=True)
    print(compared, "compared with transformers")


if __name__ == "__main__":
    main()
