#!/usr/bin/env python3
"""The wheel as a user has it: made, installed by pip into a fresh environment, and used from there.

    wheel_test.py --built FOLDER --sizes FILE --reprise FILE --model FOLDER
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
OPTIONS = {"load_format": "dummy", "device": "cpu", "plan_cache": "off", "threads": 1}
options = None


def run(*command, env=None, fails=False, cwd=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=250, env=env, cwd=cwd)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout if not fails else done.stderr


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        run(sys.executable, ROOT / "tools/make_wheel.py", "--built", options.built, "--out", cls.folder,
            "--most-bytes", options.most)
        cls.wheel = next(cls.folder.glob("*.whl"))
        run(sys.executable, "-m", "venv", "--without-pip", cls.folder / "venv")
        cls.python = cls.folder / "venv/bin/python"
        run(sys.executable, "-m", "pip", "--python", cls.python, "install", "-q", "--no-index", "--no-deps", cls.wheel)
        # Nothing of the source is found, and no library of this machine stands in for those of the wheel.
        cls.env = {"PATH": os.environ["PATH"], "HOME": str(cls.folder), "MODEL": options.model, "OPTIONS": repr(OPTIONS)}

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def python_runs(self, text, fails=False):
        return run(self.python, "-W", "error::ResourceWarning", "-c", text, env=self.env, cwd=self.folder, fails=fails)

    def ids_of_binary(self, prompt, *flags):
        model = [f"--model-path={options.model}", *(f"--{k.replace('_', '-')}={v}" for k, v in OPTIONS.items())]
        said = json.loads(run(options.reprise, "generate", *model, "--json", "--prompt", prompt, "--max-new-tokens", 12,
                              "--ignore-eos", *flags))
        return said["output"]["token_ids"]

    def test_what_is_in_it(self):
        self.assertRegex(self.wheel.name, r"^reprise_llm-[\d.]+-py3-none-manylinux_2_34_x86_64\.whl$")
        self.assertLessEqual(self.wheel.stat().st_size, int(options.most))
        with zipfile.ZipFile(self.wheel) as archive:
            self.assertIsNone(archive.testzip())
            for name in archive.namelist():
                self.assertRegex(name, r"^(reprise/(\w+\.py|py\.typed|_lib/lib[\w+.-]+|_bin/reprise)|reprise_llm-[\d.]+\.dist-info/\w+(\.txt)?)$")
        first = self.wheel.read_bytes()
        run(sys.executable, ROOT / "tools/make_wheel.py", "--built", options.built, "--out", self.folder / "again",
            "--most-bytes", options.most)
        self.assertEqual(next((self.folder / "again").glob("*.whl")).read_bytes(), first)

    def test_the_description_of_the_interface_is_the_headers(self):
        run(sys.executable, ROOT / "tools/make_ctypes.py")
        sizes = run(options.sizes)
        ours = self.python_runs(
            "import ctypes, sys; from reprise import _abi\n"
            f"for line in {sizes!r}.splitlines():\n"
            "    name = line.split()[0].split('.')\n"
            "    s = getattr(_abi, name[0])\n"
            "    print('.'.join(name), getattr(s, name[1]).offset if len(name) > 1 else ctypes.sizeof(s))\n")
        self.assertEqual(ours, sizes)

    def test_a_program_for_vllm(self):
        text = (HERE / "quick_start_vllm.py").read_text()
        self.assertEqual(text.count("vllm import"), 1)
        out = self.python_runs(text.replace("from vllm import", "from reprise import"))
        self.assertIn("done", out)
        for prompt, ids in re.findall(r"^'(.*)' \[(.*)\]$", out, re.M):
            binary = self.ids_of_binary(prompt, "--temperature", 0.8, "--top-p", 0.95, "--seed", 7)
            self.assertEqual(ids, ", ".join(map(str, binary)))

    def test_a_program_for_sglang(self):
        text = (HERE / "quick_start_sglang.py").read_text()
        out = self.python_runs(text.replace("import sglang as sgl", "import reprise as sgl"))
        self.assertIn("done", out)
        binary = self.ids_of_binary("Hello, my name is", "--temperature", 0.8, "--top-p", 0.95, "--seed", 7)
        self.assertIn(f"'Hello, my name is' {binary}", out)

    def test_chats_show_pictures_and_videos(self):
        data = ROOT / "tests/data"
        want = {name: json.loads((data / "vision/qwen3_vl" / f"{name}.json").read_text()) for name in ("answers", "video_answers")}
        self.python_runs(f"""
import base64, pathlib, reprise
from reprise import LLM, SamplingParams
from reprise.pictures import shown
data = pathlib.Path("{data}")
llm = LLM(model=str(data / "vision/qwen3_vl"), device="cpu", plan_cache="off", threads=1)
def url(file):
    return f"data:image/{{file.suffix[1:]}};base64," + base64.b64encode(file.read_bytes()).decode()
def asked(want, picture):
    def part(p):
        if p["type"] == "image":
            return picture(data / "images" / p["file"])
        return dict(type="video", video=[url(data / f"videos/clip/{{i}}.png") for i in range(5)], fps=want["fps"]) if p["type"] == "video" else p
    messages = want.get("messages") or [dict(role="user", content=want["content"])]
    return [dict(m, content=[part(p) for p in m["content"]]) if isinstance(m["content"], list) else m for m in messages]
params = SamplingParams(max_tokens=10, temperature=0)
for want in {want["answers"]!r} + {want["video_answers"]!r}:
    chat = asked(want, lambda f: dict(type="image_url", image_url=dict(url=url(f))))
    out, = llm.chat(chat, params, use_tqdm=False)
    assert list(out.outputs[0].token_ids)[:8] == want["tokens"][:8], (out.outputs[0].token_ids, want["tokens"])
both = llm.chat([chat, [dict(role="user", content="only words")]], params, use_tqdm=False)
assert both[0].outputs[0].token_ids == out.outputs[0].token_ids and both[1].prompt_token_ids
class Picture:  # the part of PIL's class that is used
    mode = "RGB"
    def __init__(self, file): self.file = file
    def save(self, held, kind): held.write(self.file.read_bytes())
png = data / "images/rgb.png"
for part in (dict(type="image_pil", image_pil=Picture(png)), dict(type="image", image=Picture(png)), dict(type="image", image=url(png))):
    (message,), shows = shown([dict(role="user", content=[part, dict(type="text", text="x")])])
    assert shows and message["content"][0] == dict(type="image_url", image_url=dict(url=url(png))), message
for wrong, kind in ((dict(type="image_pil", image_pil=5), TypeError), (dict(type="image_url", image_url=dict(url="https://a.example/b.png")), reprise.Error)):
    try:
        llm.chat([dict(role="user", content=[wrong])], params, use_tqdm=False)
        raise AssertionError(wrong)
    except kind as e:
        assert "messages[0].content[0]" in str(e), e
""")

    def test_adapters(self):
        data, tiny = ROOT / "tests/data", self.folder / "tiny"
        shutil.copytree(data / "models/llama_gqa3_tied", tiny)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(pathlib.Path(options.model) / name, tiny)
        self.python_runs(f"""
import asyncio, reprise
from reprise import AsyncEngineArgs, AsyncLLM, LLM, LoRARequest, SamplingParams
where = dict(model="{tiny}", device="cpu", plan_cache="off", threads=1)
adapters = [LoRARequest(n, i + 1, f"{data}/lora/llama_gqa3_tied." + n) for i, n in enumerate(("style", "tone"))]
params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True, logprobs=0)
prompt = dict(prompt_token_ids=[5, 17, 40, 9, 121, 60, 33])
llm = LLM(**where, enable_lora=True, max_loras=1, max_lora_rank=8)
ask = lambda lora: llm.generate(prompt, params, lora_request=lora, use_tqdm=False)[0].outputs[0]
said = lambda answer: [own for own, _ in answer._scores]  # they differ where the tokens do not
base, style = said(ask(None)), ask(adapters[0])
assert style.lora_request is adapters[0] and said(style) != base and said(ask(None)) == base
style, tone = said(style), said(ask(adapters[1]))  # in the slot of the other
assert tone not in (base, style) and said(ask(adapters[0])) == style
wide = LLM(**where, max_loras=2, max_lora_rank=8)
mixed = wide.generate([prompt] * 3, params, lora_request=[None, *adapters], use_tqdm=False)
assert [said(o.outputs[0]) for o in mixed] == [base, style, tone]
try:
    LLM(**where).generate(prompt, params, lora_request=adapters[0])
except reprise.Error as e:
    assert e.place == "enable_lora", e.place
else:
    raise AssertionError("an engine without slots took an adapter")
engine = reprise.Engine(where.pop("model"), **where, lora_paths=["style=" + adapters[0].lora_path])
given = dict(input_ids=prompt["prompt_token_ids"], return_logprob=True,
             sampling_params=dict(max_new_tokens=8, temperature=0, ignore_eos=True))
scores = lambda **more: [own for own, *_ in engine.generate(**given, **more)["meta_info"]["output_token_logprobs"]]
assert scores() == base and scores(lora_path="style") == style
engine.load_lora_adapter("tone", adapters[1].lora_path)
assert scores(lora_path="tone") == tone
engine.unload_lora_adapter("tone")
engine.shutdown()
""")

    def test_vectors_and_scores(self):
        data, words = ROOT / "tests/data/encoders", ["A graph is captured once.", "The sea is blue."]
        flags = [f"--{k.replace('_', '-')}={v}" for k, v in OPTIONS.items() if k != "load_format"]
        texts = [word for text in words for word in ("--text", text)]
        said = [json.loads(run(options.reprise, "embed", "--json", f"--model-path={data}/{name}", *flags, *texts, *more))
                for name, more in (("bert_mean", []), ("bert_scores", ["--query", "what is captured?"]))]
        self.python_runs(f"""
import reprise, struct
texts, vectors, scores = {words!r}, {said[0]["embeddings"]!r}, {said[1]["scores"]!r}
where = dict(device="cpu", plan_cache="off", threads=1)
bits = lambda row: struct.pack(f"<{{len(row)}}f", *row)
llm = reprise.LLM("{data}/bert_mean", **where)
outputs = llm.embed(texts)
assert [bits(o.outputs.embedding) for o in outputs] == [bits(v) for v in vectors]
assert bits(llm.embed(texts[1])[0].outputs.embedding) == bits(vectors[1])
assert abs(llm.score(texts[0], texts)[0].outputs.score - 1) < 1e-3
engine = reprise.Engine("{data}/bert_mean", **where)
assert bits(engine.encode(texts[0])["embedding"]) == bits(vectors[0]) and len(engine.encode(texts)) == 2
ranker = reprise.LLM("{data}/bert_scores", **where)
pairs = [ranker.score("what is captured?", texts), ranker.score(["what is captured?"] * 2, texts)]
assert all(bits([o.outputs.score for o in p]) == bits(scores) for p in pairs)
ranked = reprise.Engine("{data}/bert_scores", **where).rerank([["what is captured?", t] for t in texts])
assert bits([r["embedding"] for r in ranked]) == bits(scores)
def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(kind)
assert raises(reprise.Error, lambda: llm.embed([])).place == "inputs"
raises(TypeError, lambda: llm.embed([[1, 2]]))
raises(ValueError, lambda: ranker.score(texts, ["a"]))
assert raises(reprise.Error, lambda: ranker.embed(texts)).code == "unsupported"
""")

    def test_streams_of_asyncio(self):
        self.python_runs("""
import asyncio, os
from reprise import AsyncEngineArgs, AsyncLLM, RequestOutputKind, SamplingParams
async def one(llm, i, kind):
    text, steps = "", 0
    params = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True, output_kind=kind)
    async for o in llm.generate("Hello", params, f"r{i}"):
        text = text + o.outputs[0].text if kind is RequestOutputKind.DELTA else o.outputs[0].text
        steps += 1
    assert o.finished and o.outputs[0].finish_reason == "length"
    return text, steps
async def main():
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(os.environ["MODEL"], max_num_seqs=4, **eval(os.environ["OPTIONS"])))
    kinds = [RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY]
    answers = await asyncio.gather(*(one(llm, i, kinds[i % 3]) for i in range(64)))
    assert len({text for text, _ in answers}) == 1 and answers[0][0]
    assert all(steps == (1 if i % 3 == 2 else 11) for i, (_, steps) in enumerate(answers)), answers
    # A reader that goes away, an abort, a task that is cancelled.
    async for o in llm.generate("Hello", SamplingParams(max_tokens=200, ignore_eos=True), "left"):
        break
    # Four run at a time, so the last of these has not begun when it is aborted, nor have the tasks ended.
    async def long(name):
        async for o in llm.generate("Hello", SamplingParams(max_tokens=400, ignore_eos=True), name):
            pass
        return o.outputs[0].finish_reason
    tasks = [asyncio.create_task(long(f"long{i}")) for i in range(40)] + [asyncio.create_task(long("aborted"))]
    while "aborted" not in llm._running:
        await asyncio.sleep(0)
    await llm.abort("aborted")
    assert await tasks[-1] == "abort"
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(e, asyncio.CancelledError) for e in ended) > 20, ended
    assert (await one(llm, 1001, kinds[0]))[0] == answers[0][0]
    while llm._core.describe("counters")["running"]:
        await asyncio.sleep(0.01)
    llm.shutdown()
asyncio.run(main())
""")

    def test_errors_name_what_is_meant(self):
        self.assertIn("'max_runing_requests' is not a setting; did you mean max_running_requests",
                      self.python_runs("import reprise; reprise.LLM('x', max_runing_requests=1)", fails=True))
        self.python_runs("""
import os, reprise
def raises(kind, words, call):
    try:
        call()
    except kind as e:
        assert words in str(e), e
        return e
    raise AssertionError(words)
options = eval(os.environ["OPTIONS"])
raises(NotImplementedError, "bad_words", lambda: reprise.SamplingParams(bad_words=["a"]))
raises(reprise.Error, "no such", lambda: reprise.LLM("/no such/model"))
assert raises(reprise.Error, "ranks", lambda: reprise.LLM(os.environ["MODEL"], tensor_parallel_size=2, **options)).code == "unsupported"
llm = reprise.LLM(os.environ["MODEL"], **options)
assert raises(reprise.Error, "top_p", lambda: llm.generate("a", reprise.SamplingParams(top_p=3))).place == "sampling.top_p"
raises(ValueError, "sampling_params", lambda: llm.generate(["a", "b"], [reprise.SamplingParams()]))
out = llm.generate("a", reprise.SamplingParams(max_tokens=30, structured_outputs={"choice": ["north", "south"]}), use_tqdm=False)
assert out[0].outputs[0].text in ("north", "south")
assert llm.explain().decode.passes[0].name and llm.describe("memory")["weight_bytes"] > 0
assert "vllm:generation_tokens_total" in llm.describe("metrics")
llm.shutdown()
raises(reprise.Error, "closed", lambda: llm.generate("a"))
""")

    def test_it_may_end_at_any_time(self):
        # An engine with work that nobody waits for: the interpreter ends, and so does a generator that is collected.
        self.python_runs("""
import gc, os, reprise
engine = reprise.Engine(os.environ["MODEL"], **eval(os.environ["OPTIONS"]))
stream = engine.generate("Hello", {"max_new_tokens": 200, "ignore_eos": True}, stream=True)
next(stream)
del stream
gc.collect()
assert len(engine.generate("Hello", {"max_new_tokens": 3, "ignore_eos": True})["output_ids"]) == 3
for i in range(8):
    engine._submit(engine._jobs("Hello", None, {"max_new_tokens": 200, "ignore_eos": True}, False, None, 0, None)[1][0], 0, "")
""")

    def test_the_program(self):
        said = run(self.folder / "venv/bin/reprise", "--version", env=self.env)
        self.assertTrue(said.startswith("reprise "), said)
        self.assertIn("ABI", said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("built", "sizes", "reprise", "model", "most"):
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
