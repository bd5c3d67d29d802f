"""OpenAI's own Python client, unchanged, against families whose answers or caches are of their own kind: gpt-oss, which
speaks harmony, and a recurrent model.

The models are the tiny ones of tests/data/models with a tokenizer of one byte per token, so what they say is noise. Where
it matters what gpt-oss says, its answer is held to a pattern: texts that the package openai-harmony has written, and read
(tests/data/harmony). The recurrent model is compared with the logits of transformers (golden.safetensors).
"""

import json
import math
import pathlib
import re
import shutil
import struct
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

from support import ROOT, VISION, WithServer, soon

MODELS = ROOT / "tests/data/models"
HARMONY = ROOT / "tests/data/harmony"
MARKS = {1: "<|start|>", 2: "<|return|>", 146: "<|channel|>", 147: "<|message|>", 148: "<|end|>", 149: "<|call|>",
         150: "<|constrain|>"}
TOOLS = [{"type": "function", "function": {"name": name, "description": "Something.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}} for name in ("get_weather", "a-b.c_9", "f")]


def folder_of(name, template=None, marks=None, longest=None):
    """A tiny model with the tokenizer of bytes, its special tokens renamed."""
    folder = pathlib.Path(tempfile.mkdtemp()) / name
    folder.mkdir()
    config = json.loads((MODELS / name / "config.json").read_text())
    if longest:
        config["max_position_embeddings"] = longest
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(MODELS / name / "model.safetensors", folder)
    tokenizer = json.loads((VISION / "tokenizer.json").read_text())
    tokens = json.loads((VISION / "tokenizer_config.json").read_text())
    if marks:
        vocabulary = tokenizer["model"]["vocab"]
        tokenizer["model"]["vocab"] = {marks.get(id, token): id for token, id in vocabulary.items()} | {
            text: id for id, text in marks.items()}
        tokenizer["added_tokens"] = [{**tokenizer["added_tokens"][0], "id": id, "content": text}
                                     for id, text in marks.items()]
        tokens["eos_token"] = marks[config["eos_token_id"]]
    if template:
        tokens["chat_template"] = template
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    return folder


def tensors_of(path):
    """The tensors of a safetensors file, of 32 bits each: their shape and a flat list."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    kinds = {"F32": "f", "I32": "i"}
    out = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = (t["shape"], struct.unpack(f"<{(end - begin) // 4}{kinds[t['dtype']]}", data[8 + size + begin:8 + size + end]))
    return out


class Family(WithServer):
    @classmethod
    def setUpClass(cls):
        cls.model = cls.folder()
        cls.name = cls.model.name
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.model.parent)

    def setUp(self):
        self.client = OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def chat(self, messages, **fields):
        return self.client.chat.completions.create(
            model=self.name, messages=messages, **{"temperature": 0, "max_completion_tokens": 8, **fields})


class Harmony(Family):
    @classmethod
    def folder(cls):
        return folder_of("gpt_oss", (ROOT / "tests/data/chat_templates/templates/gptoss.jinja").read_text(), MARKS, 8192)

    def said(self, text, **fields):
        """A chat whose answer is this text."""
        return {"messages": [{"role": "user", "content": "Well?"}], "tools": TOOLS, "max_completion_tokens": 1000,
                "extra_body": {"regex": re.sub(r"([^\w\s])", r"\\\1", text)}, **fields}

    def expected(self, messages):
        """What a client gets of the messages that openai-harmony reads."""
        thought = "\n".join(m["content"] for m in messages if m["content"] and m["channel"] == "analysis" and not m["recipient"])
        words = "\n".join(m["content"] for m in messages if m["content"] and m["channel"] != "analysis" and not m["recipient"])
        calls = [(m["recipient"].removeprefix("functions."), json.loads(m["content"])) for m in messages
                 if (m["recipient"] or "").startswith("functions.")]
        return thought, words, calls

    def test_prompts_are_those_that_openai_harmony_renders(self):
        for case in json.loads((HARMONY / "prompts.json").read_text()):
            tokens = self.client.post("/../tokenize", body=case["request"], cast_to=object)["tokens"]
            prompt = self.client.post("/../detokenize", body={"tokens": tokens}, cast_to=object)["prompt"]
            day = re.compile(r"Current date: \d{4}-\d\d-\d\d")
            self.assertEqual(day.sub("DAY", prompt), day.sub("DAY", case["prompt"]))
            self.assertEqual(tokens.count(1), case["prompt"].count("<|start|>"), "a mark is one token")

    def test_answers_are_what_openai_harmony_reads_whole_and_streamed(self):
        cases = [c for c in json.loads((HARMONY / "answers.json").read_text())
                 if c["text"].isascii() and len(c["text"]) < 240 and "to=python" not in c["text"]]
        kinds = set()
        for case in cases[::3]:
            # The tokens that end an answer are no part of its text.
            text = re.sub(r"<\|(return|call)\|>$", "", case["text"])
            thought, words, calls = self.expected(case["messages"])
            fields = self.said(text)
            choice = self.chat(**fields).choices[0]
            self.assertEqual((choice.message.content or ""), words, text)
            self.assertEqual(choice.message.model_extra.get("reasoning_content") or "", thought, text)
            got = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or []]
            self.assertEqual(got, calls, text)
            self.assertEqual(choice.finish_reason, "tool_calls" if calls else "stop")
            kinds.add((bool(thought), bool(words), bool(calls)))

            parts = {"content": "", "reasoning_content": ""}
            names, arguments, ends = [], "", []
            for chunk in self.chat(stream=True, **fields):
                delta = chunk.choices[0].delta
                for part in parts:
                    parts[part] += getattr(delta, part, None) or ""
                for call in delta.tool_calls or []:
                    names += [call.function.name] if call.function.name else []
                    arguments += call.function.arguments or ""
                ends += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
            self.assertEqual((parts["content"], parts["reasoning_content"]), (words, thought), text)
            self.assertEqual(names, [name for name, _ in calls])
            self.assertEqual(arguments, "".join(c.function.arguments for c in choice.message.tool_calls or []))
            self.assertEqual(ends, [choice.finish_reason])
        self.assertGreaterEqual(len(kinds), 4, kinds)

    def test_a_conversation_with_a_tool(self):
        call_text = '<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary ' \
                    'to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}'
        fields = self.said(call_text, reasoning_effort="high")
        message = self.chat(**fields).choices[0].message
        (call,) = message.tool_calls
        history = [*fields["messages"], message.model_dump(exclude_none=True),
                   {"role": "tool", "tool_call_id": call.id, "content": "5 degrees"}]
        tokens = self.client.post("/../tokenize", body={"messages": history, "tools": TOOLS, "reasoning_effort": "high"},
                                  cast_to=object)["tokens"]
        prompt = self.client.post("/../detokenize", body={"tokens": tokens}, cast_to=object)["prompt"]
        self.assertIn("Reasoning: high", prompt)
        # The thought of a turn that waits for a result stays in the history.
        self.assertIn("<|channel|>analysis<|message|>I look.<|end|>", prompt)
        self.assertIn("to=functions.get_weather<|channel|>commentary", prompt)
        self.assertIn("<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>", prompt)
        last = self.chat(**{**self.said("<|channel|>final<|message|>It is cold."), "messages": history}).choices[0]
        self.assertEqual((last.message.content, last.finish_reason), ("It is cold.", "stop"))

    def test_responses_have_items_for_calls_and_keep_thoughts(self):
        parameters = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
                      "required": ["n"], "additionalProperties": False}
        function = {"name": "f", "description": "Something.", "parameters": parameters}
        fields = {"model": self.name, "tools": [{"type": "function", "strict": False, **function}],
                  "max_output_tokens": 200, "temperature": 0}
        with self.client.responses.stream(input="Well?", tool_choice="required", parallel_tool_calls=False,
                                          **fields) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        (call,) = final.output
        self.assertEqual((call.type, call.name), ("function_call", "f"))
        self.assertIn(json.loads(call.arguments)["n"], range(10))
        self.assertEqual(kinds.count("response.function_call_arguments.done"), 1)
        # A thought goes back with the call, and is in the prompt as that of a chat. The answer to it is noise.
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "5"}
        thought = {"type": "reasoning", "id": "rs_1", "summary": [],
                   "content": [{"type": "reasoning_text", "text": "I look."}]}
        sizes = []
        for thoughts in ([], [thought]):
            history = [{"role": "user", "content": "Well?"}, *thoughts, call.model_dump(exclude_none=True), result]
            answer = self.client.responses.create(input=history, **{**fields, "max_output_tokens": 4})
            self.assertEqual((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))
            chat = [{"role": "user", "content": "Well?"},
                    {"role": "assistant", "content": None, **({"reasoning_content": "I look."} if thoughts else {}),
                     "tool_calls": [{"id": call.call_id, "type": "function",
                                     "function": {"name": "f", "arguments": call.arguments}}]},
                    {"role": "tool", "tool_call_id": call.call_id, "content": "5"}]
            tools = [{"type": "function", "function": function}]
            tokens = self.client.post("/../tokenize", body={"messages": chat, "tools": tools}, cast_to=object)["tokens"]
            self.assertEqual(answer.usage.input_tokens, len(tokens))
            sizes.append(len(tokens))
        self.assertGreater(sizes[1], sizes[0] + len("I look."))

    def test_a_form_has_no_messages(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["n"],
                  "additionalProperties": False}
        choice = self.chat([{"role": "user", "content": "n?"}], max_completion_tokens=60, response_format={
            "type": "json_schema", "json_schema": {"name": "n", "schema": schema}}).choices[0]
        self.assertIn(json.loads(choice.message.content)["n"], range(10))
        choice = self.chat([{"role": "user", "content": "n?"}], max_completion_tokens=100, tools=[
            {"type": "function", "function": {"name": "count", "parameters": schema}}], tool_choice="required",
            parallel_tool_calls=False).choices[0]
        (call,) = choice.message.tool_calls
        self.assertEqual((call.function.name, choice.finish_reason), ("count", "tool_calls"))


class Recurrent(Family):
    """Qwen3-Next: three layers of four have a state instead of keys and values."""

    @classmethod
    def folder(cls):
        cls.golden = tensors_of(MODELS / "qwen3_next/golden.safetensors")
        return folder_of("qwen3_next")

    def complete(self, prompt, **fields):
        return self.client.completions.create(model=self.name, prompt=prompt, **{
            "temperature": 0, "max_tokens": 12, "extra_body": {"return_token_ids": True, "ignore_eos": True}, **fields})

    def ids(self, prompt, **fields):
        return self.complete(prompt, **fields).choices[0].model_extra["token_ids"]

    def test_the_next_token_is_that_of_transformers(self):
        for length in ("7", "131"):
            ids = list(self.golden["tokens." + length][1])
            (rows, vocabulary), logits = self.golden["logits." + length]
            self.assertEqual(self.golden["positions." + length][1][-1], len(ids) - 1)
            row = logits[(rows - 1) * vocabulary:]
            best = max(range(vocabulary), key=lambda i: row[i])
            top = max(row)
            log_sum = top + math.log(sum(math.exp(x - top) for x in row))
            for cut in (ids, ids):  # the second finds its beginning in the cache
                choice = self.complete(cut, max_tokens=1, logprobs=1).choices[0]
                self.assertEqual(choice.model_extra["token_ids"], [best])
                self.assertAlmostEqual(choice.logprobs.token_logprobs[0], row[best] - log_sum, delta=1e-3)

    def test_a_prompt_that_is_known_says_the_same(self):
        prompt = [3 + (i * 37 + i * i) % 140 for i in range(300)]
        first = self.complete(prompt)
        again = self.complete(prompt)
        self.assertEqual(again.choices[0].model_extra["token_ids"], first.choices[0].model_extra["token_ids"])
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, 128)
        # A longer one goes on from a state that was kept.
        said = first.choices[0].model_extra["token_ids"]
        longer = self.complete(prompt + said[:6])
        self.assertGreaterEqual(longer.usage.prompt_tokens_details.cached_tokens, 128)
        self.assertEqual(longer.choices[0].model_extra["token_ids"][:6], said[6:])

    def test_many_at_once_streamed_and_with_drafts_say_what_each_says_alone(self):
        prompts = [[3 + (i * k) % 140 for i in range(5 + 9 * k)] for k in range(1, 9)]
        alone = [self.ids(p) for p in prompts]
        with ThreadPoolExecutor(len(prompts)) as pool:
            self.assertEqual(list(pool.map(self.ids, prompts)), alone)
        text = self.complete(prompts[3]).choices[0].text
        self.assertEqual("".join(c.choices[0].text for c in self.complete(prompts[3], stream=True)), text)
        several = self.complete(prompts[:3])
        self.assertEqual([c.model_extra["token_ids"] for c in several.choices], alone[:3])

    def test_chats_stream_and_take_turns(self):
        messages = [{"role": "user", "content": "Hello"}]
        whole = self.chat(messages, max_completion_tokens=16)
        text = whole.choices[0].message.content
        chunks = self.chat(messages, max_completion_tokens=16, stream=True)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), text)
        both = self.chat(messages, max_completion_tokens=16, n=2, temperature=1, seed=5)
        again = self.chat(messages, max_completion_tokens=16, n=2, temperature=1, seed=5)
        self.assertEqual([c.message.content for c in both.choices], [c.message.content for c in again.choices])
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And?"}]
        self.assertEqual(self.chat(messages).choices[0].message.content, self.chat(messages).choices[0].message.content)

    def test_a_client_that_leaves_frees_its_state(self):
        with self.counted() as done:
            stream = self.complete([5, 6, 7], stream=True, max_tokens=480)
            next(iter(stream))
            stream.close()
            self.assertTrue(soon(lambda: self.server.counter("vllm:num_requests_running") == 0))
        self.assertEqual(done["abort"], 1)
        self.assertEqual(self.ids([5, 6, 7]), self.ids([5, 6, 7]))


if __name__ == "__main__":
    unittest.main()
