"""Ollama's own Python client, unchanged, against `reprise serve`."""

import asyncio
import json
import unittest

import ollama

from said import generated
from support import MODEL, VISION, WithServer, asked_of_images

QUESTION = "What is the capital of France?"
GREEDY = {"temperature": 0, "num_predict": 24}


def get_weather(city: str) -> str:
    """The weather of a city now.

    Args:
      city: The city
    """
    return city


class OllamaTest(WithServer):
    def setUp(self):
        self.client = ollama.Client(host=self.server.url)

    def chat(self, messages=None, **fields):
        return self.client.chat(model=MODEL, messages=messages or [{"role": "user", "content": QUESTION}],
                                options=GREEDY, **fields)


class Chat(OllamaTest):
    def test_whole_streamed_and_async_say_what_generate_says(self):
        want = generated(QUESTION, 24)
        self.assertIn("Paris", want)
        with self.counted() as done:
            whole = self.chat()
        self.assertEqual((whole.message.role, whole.message.content), ("assistant", want))
        self.assertEqual((whole.done, whole.done_reason, whole.model), (True, "stop", MODEL))
        self.assertEqual((whole.prompt_eval_count, whole.eval_count), (done["prompt"], done["generated"]))
        self.assertGreater(whole.eval_duration, 0)
        self.assertGreaterEqual(whole.total_duration, whole.prompt_eval_duration + whole.eval_duration)
        parts = list(self.chat(stream=True))
        self.assertEqual("".join(p.message.content for p in parts), want)
        self.assertEqual([p.done for p in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual(self.client.generate(model=MODEL, prompt=QUESTION, options=GREEDY).response, want)
        self.assertEqual("".join(p.response for p in self.client.generate(
            model=MODEL + ":latest", prompt=QUESTION, options=GREEDY, stream=True)), want)
        text = "The capital of France is"
        self.assertEqual(self.client.generate(model=MODEL, prompt=text, raw=True, options=GREEDY).response,
                         generated(text, 24, chat=False))

        async def ask():
            client = ollama.AsyncClient(host=self.server.url)
            stream = await client.chat(model=MODEL, messages=[{"role": "user", "content": QUESTION}], options=GREEDY,
                                       stream=True)
            return "".join([part.message.content async for part in stream])

        self.assertEqual(asyncio.run(ask()), want)

    def test_options(self):
        short = self.client.chat(model=MODEL, messages=[{"role": "user", "content": QUESTION}],
                                 options={"temperature": 0, "num_predict": 2})
        self.assertEqual((short.eval_count, short.done_reason), (2, "length"))
        stopped = self.client.chat(model=MODEL, messages=[{"role": "user", "content": QUESTION}],
                                   options={**GREEDY, "stop": ["Paris"]})
        self.assertNotIn("Paris", stopped.message.content)
        drawn = [self.client.chat(model=MODEL, messages=[{"role": "user", "content": QUESTION}],
                                  options={"temperature": 1, "seed": 5, "num_predict": 16}).message.content
                 for _ in range(2)]
        self.assertEqual(drawn[0], drawn[1])
        logs = self.chat(logprobs=True, top_logprobs=2).logprobs
        self.assertEqual(len(logs), self.chat().eval_count)
        self.assertEqual(len(logs[0].top_logprobs), 2)

    def test_formats(self):
        schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                  "additionalProperties": False}
        self.assertEqual(json.loads(self.chat(format=schema).message.content), {"city": "Paris"})
        asked = self.client.chat(model=MODEL, messages=[{"role": "user", "content": "A small JSON object, please."}],
                                 options={"temperature": 0, "num_predict": 300}, format="json")
        if asked.done_reason == "stop":
            self.assertIsInstance(json.loads(asked.message.content), dict)

    def test_tools(self):
        messages = [{"role": "user", "content": QUESTION},
                    {"role": "assistant", "content": "",
                     "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]},
                    {"role": "tool", "tool_name": "get_weather", "content": "18 degrees"}]
        with_tools, without = self.chat(tools=[get_weather]), self.chat()
        self.assertGreater(with_tools.prompt_eval_count, without.prompt_eval_count)
        self.assertTrue(self.chat(messages, tools=[get_weather]).message.content)


class Models(OllamaTest):
    def test_what_there_is(self):
        model, = self.client.list().models
        self.assertEqual(model.model, MODEL + ":latest")
        self.assertGreater(int(model.size), 50e6)
        self.assertEqual(len(model.digest), 64)
        self.assertEqual((model.details.format, model.details.family), ("gguf", "llama"))
        self.assertEqual(model.details.parameter_size, "134.5M")
        running, = self.client.ps().models
        self.assertEqual(running.model, model.model)
        shown = self.client.show(MODEL)
        self.assertEqual(shown.modelinfo["general.architecture"], "llama")
        self.assertEqual(shown.modelinfo["llama.context_length"], 8192)
        self.assertIn("tools", shown.capabilities)
        self.assertIn("messages", shown.template)

    def test_errors(self):
        for code, call in ((404, lambda: self.client.chat(model="other", messages=[{"role": "user", "content": "a"}])),
                           (404, lambda: self.client.show("other")),
                           (400, lambda: self.client.embed(model=MODEL, input="a")),
                           (400, lambda: self.client.generate(model=MODEL, prompt="a", suffix="b")),
                           (501, lambda: self.client.pull("other")),
                           (501, lambda: self.client.push("other")),
                           (501, lambda: self.client.copy(MODEL, "other")),
                           (501, lambda: self.client.delete(MODEL))):
            with self.assertRaises(ollama.ResponseError) as caught:
                call()
            self.assertEqual(caught.exception.status_code, code, caught.exception.error)
            self.assertTrue(caught.exception.error)
        self.assertEqual(self.client.chat(model=MODEL).done_reason, "load")


class Images(WithServer):
    model = VISION

    def test_both_routes_say_what_the_reference_says(self):
        parts, want = asked_of_images(2)
        images, text = [p[0] for p in parts[:-1]], parts[-1]
        client = ollama.Client(host=self.server.url)
        options = {"temperature": 0, "num_predict": 10}
        self.assertIn("vision", client.show("qwen3_vl").capabilities)
        chat = client.chat("qwen3_vl", [{"role": "user", "content": text, "images": images}], options=options)
        self.assertEqual((chat.message.content, chat.prompt_eval_count), (want["text"], want["prompt_tokens"]))
        self.assertEqual(client.generate("qwen3_vl", text, images=images, options=options).response, want["text"])


if __name__ == "__main__":
    unittest.main()
