"""OpenAI's own Python client, unchanged, against `reprise serve`."""

import asyncio
import base64
import json
import pathlib
import re
import struct
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import openai
import pydantic
from openai import AsyncOpenAI, OpenAI

from support import MODEL, VISION, Server, WithServer, asked_of_images, free_port, soon

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city now.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {
            "type": "object",
            "properties": {"hours_from_utc": {"type": "integer", "minimum": -12, "maximum": 14}},
            "required": ["hours_from_utc"],
            "additionalProperties": False,
        },
    },
}


def client_of(server, **options):
    return OpenAI(base_url=server.url + "/v1", **{"api_key": "none", "max_retries": 0, **options})


class OpenAITest(WithServer):
    def setUp(self):
        self.client = client_of(self.server)
        self.addCleanup(self.client.close)

    def chat(self, messages=QUESTION, **fields):
        fields = {"temperature": 0, "max_completion_tokens": 24, **fields}
        return self.client.chat.completions.create(model=MODEL, messages=messages, **fields)

    def complete(self, prompt, **fields):
        return self.client.completions.create(model=MODEL, prompt=prompt, **{"temperature": 0, **fields})


class Models(OpenAITest):
    def test_list_and_retrieve(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).owned_by, "reprise")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("gpt-9")
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))


class Chat(OpenAITest):
    def test_whole_streamed_and_async_say_the_same(self):
        with self.counted() as done:
            whole = self.chat()
        text = whole.choices[0].message.content
        self.assertIn("Paris", text)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        self.assertEqual(whole.object, "chat.completion")
        self.assertEqual(done["prompt"], whole.usage.prompt_tokens)
        self.assertEqual(done["generated"], whole.usage.completion_tokens)
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)

        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks[:-1]), text)
        self.assertEqual([c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason], ["stop"])
        self.assertEqual({c.object for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        # The prompt has been read before.
        self.assertEqual(chunks[-1].usage.prompt_tokens_details.cached_tokens, whole.usage.prompt_tokens - 1)
        self.assertTrue(all(c.usage is None and len(c.choices) == 1 for c in self.chat(stream=True)))

        async def ask():
            async with AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0) as client:
                one = await client.chat.completions.create(
                    model=MODEL, messages=QUESTION, temperature=0, max_completion_tokens=24)
                parts = []
                stream = await client.chat.completions.create(
                    model=MODEL, messages=QUESTION, temperature=0, max_completion_tokens=24, stream=True)
                async for chunk in stream:
                    parts.append(chunk.choices[0].delta.content or "")
                return one.choices[0].message.content, "".join(parts)

        self.assertEqual(asyncio.run(ask()), (text, text))

    def test_many_at_once_say_what_each_says_alone(self):
        prompts = [f"Count from {i} to {i + 5}:" for i in range(32)]
        alone = [self.complete(p, max_tokens=16).choices[0].text for p in prompts]

        async def ask():
            async with AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0) as client:
                return await asyncio.gather(*(
                    client.completions.create(model=MODEL, prompt=p, max_tokens=16, temperature=0) for p in prompts))

        with self.counted() as done:
            together = asyncio.run(ask())
        self.assertEqual([a.choices[0].text for a in together], alone)
        self.assertEqual(done["prompt"], sum(a.usage.prompt_tokens for a in together))
        self.assertEqual(done["generated"], sum(a.usage.completion_tokens for a in together))

    def test_the_stream_helper_puts_the_answer_together(self):
        with self.client.chat.completions.stream(
            model=MODEL, messages=QUESTION, temperature=0, max_completion_tokens=24
        ) as stream:
            deltas = [e.delta for e in stream if e.type == "content.delta"]
            final = stream.get_final_completion()
        self.assertEqual("".join(deltas), self.chat().choices[0].message.content)
        self.assertEqual(final.choices[0].message.content, "".join(deltas))

    def test_parts_and_a_system_message(self):
        parts = [{"type": "text", "text": "What is the capital "}, {"type": "text", "text": "of France?"}]
        system = {"role": "system", "content": "Answer briefly."}
        one = self.chat([system, {"role": "user", "content": parts}])
        self.assertEqual(one.choices[0].message.content, self.chat([system, *QUESTION]).choices[0].message.content)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}])
        self.assertEqual(caught.exception.param, "messages[0].content[0].image_url.url")

    def test_log_probabilities(self):
        answer = self.chat(logprobs=True, top_logprobs=3).choices[0]
        tokens = answer.logprobs.content
        spoken = b"".join(bytes(t.bytes) for t in tokens).decode()
        self.assertTrue(spoken.startswith(answer.message.content), (spoken, answer.message.content))
        for t in tokens:
            self.assertEqual(len(t.top_logprobs), 3)
            self.assertEqual(t.logprob, max(o.logprob for o in t.top_logprobs))  # greedy
            self.assertLessEqual(t.logprob, 0)
        streamed = [
            t for c in self.chat(logprobs=True, top_logprobs=3, stream=True)
            if c.choices[0].logprobs for t in c.choices[0].logprobs.content
        ]
        self.assertEqual([(t.token, t.logprob) for t in streamed], [(t.token, t.logprob) for t in tokens])
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(top_logprobs=3)
        self.assertEqual(caught.exception.param, "top_logprobs")

    def test_several_answers(self):
        with self.counted() as done:
            out = self.chat(n=4, temperature=1.5, seed=7, max_completion_tokens=12)
        texts = [c.message.content for c in out.choices]
        self.assertEqual([c.index for c in out.choices], [0, 1, 2, 3])
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual(done["generated"], out.usage.completion_tokens)
        again = self.chat(n=4, temperature=1.5, seed=7, max_completion_tokens=12)
        self.assertEqual([c.message.content for c in again.choices], texts)
        streamed = [""] * 4
        for c in self.chat(n=4, temperature=1.5, seed=7, max_completion_tokens=12, stream=True):
            streamed[c.choices[0].index] += c.choices[0].delta.content or ""
        self.assertEqual(streamed, texts)

    def test_a_client_that_leaves_frees_its_place(self):
        with self.counted() as done:
            stream = self.chat(stream=True, max_completion_tokens=4000, extra_body={"ignore_eos": True})
            next(iter(stream))
            stream.close()
            self.assertTrue(soon(lambda: self.server.counter("vllm:num_requests_running") == 0))
        self.assertEqual(done["abort"], 1)
        self.assertLess(done["generated"], 4000)


class Completions(OpenAITest):
    def test_texts_ids_and_lists(self):
        prompt = "The capital of France is"
        one = self.complete(prompt, max_tokens=8)
        self.assertEqual((one.object, one.choices[0].finish_reason), ("text_completion", "length"))
        self.assertEqual(one.usage.completion_tokens, 8)
        ids = self.client.post("/../tokenize", body={"prompt": prompt}, cast_to=object)["tokens"]
        self.assertEqual(self.complete(ids, max_tokens=8).choices[0].text, one.choices[0].text)
        several = self.complete([prompt, "One, two,"], max_tokens=8)
        self.assertEqual(several.choices[0].text, one.choices[0].text)
        self.assertEqual(several.choices[1].text, self.complete("One, two,", max_tokens=8).choices[0].text)
        self.assertEqual(self.complete([ids, ids], max_tokens=8).choices[1].text, one.choices[0].text)
        streamed = "".join(c.choices[0].text for c in self.complete(prompt, max_tokens=8, stream=True))
        self.assertEqual(streamed, one.choices[0].text)

    def test_echo_and_log_probabilities(self):
        prompt = "The capital of France is"
        out = self.complete(prompt, max_tokens=1, echo=True, logprobs=1)
        choice = out.choices[0]
        logs = choice.logprobs
        self.assertTrue(choice.text.startswith(prompt))
        self.assertEqual("".join(logs.tokens), choice.text)
        self.assertEqual(len(logs.token_logprobs), out.usage.prompt_tokens + 1)
        self.assertIsNone(logs.token_logprobs[0])
        self.assertIsNone(logs.top_logprobs[0])
        self.assertTrue(all(x <= 0 for x in logs.token_logprobs[1:]))
        self.assertEqual(logs.token_logprobs[-1], max(logs.top_logprobs[-1].values()))
        self.assertEqual(logs.text_offset[1], len(logs.tokens[0]))

    def test_stop_and_bias(self):
        text = self.complete("1, 2, 3, 4,", max_tokens=12).choices[0].text
        self.assertIn(" 6", text)
        cut = self.complete("1, 2, 3, 4,", max_tokens=12, stop=[" 6", "never"]).choices[0]
        self.assertEqual((cut.text, cut.finish_reason), (text.split(" 6")[0], "stop"))
        first = self.client.post("/../tokenize", body={"prompt": text}, cast_to=object)["tokens"][0]
        other = self.complete("1, 2, 3, 4,", max_tokens=1, logit_bias={str(first): -100}).choices[0].text
        self.assertNotEqual(other, self.complete("1, 2, 3, 4,", max_tokens=1).choices[0].text)


class Tools(OpenAITest):
    def test_required_tools_give_arguments_that_parse(self):
        message = self.chat(tools=[WEATHER, CLOCK], tool_choice="required", parallel_tool_calls=False,
                            max_completion_tokens=100).choices[0]
        self.assertEqual(message.finish_reason, "tool_calls")
        (call,) = message.message.tool_calls
        arguments = json.loads(call.function.arguments)
        self.assertTrue(call.id)
        self.assertEqual(call.type, "function")
        self.assertIn((call.function.name, set(arguments)),
                      [("get_weather", {"city", "unit"}), ("get_time", {"hours_from_utc"})])

    def test_a_named_tool_whole_and_streamed(self):
        fields = {"tools": [WEATHER, CLOCK], "max_completion_tokens": 100,
                  "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
        (call,) = self.chat(**fields).choices[0].message.tool_calls
        arguments = json.loads(call.function.arguments)
        self.assertEqual(call.function.name, "get_weather")
        self.assertIn(arguments["unit"], ("celsius", "fahrenheit"))
        names, streamed = [], ""
        for chunk in self.chat(stream=True, **fields):
            for part in chunk.choices[0].delta.tool_calls or []:
                self.assertEqual(part.index, 0)
                names += [part.function.name] if part.function.name else []
                streamed += part.function.arguments or ""
        self.assertEqual((names, json.loads(streamed)), (["get_weather"], arguments))

    def test_tools_of_pydantic_classes_come_back_as_objects(self):
        class Book(pydantic.BaseModel):
            title: str = pydantic.Field(max_length=20)
            copies: int = pydantic.Field(ge=1, le=9)

        done = self.client.chat.completions.parse(
            model=MODEL, messages=[{"role": "user", "content": "I want two copies of Dune."}], temperature=0,
            tools=[openai.pydantic_function_tool(Book)], tool_choice="required", parallel_tool_calls=False,
            max_completion_tokens=100)
        book = done.choices[0].message.tool_calls[0].function.parsed_arguments
        self.assertIsInstance(book, Book)

    def test_the_answer_of_a_tool_is_read(self):
        (call,) = self.chat(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False,
                            max_completion_tokens=100).choices[0].message.tool_calls
        messages = QUESTION + [
            {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": "18 degrees and sunny"},
        ]
        self.assertTrue(self.chat(messages).choices[0].message.content)

    def test_auto_is_told_a_way_to_write_calls(self):
        plain, told = self.chat(), self.chat(tools=[WEATHER])
        self.assertGreater(told.usage.prompt_tokens, plain.usage.prompt_tokens + 50)
        # Held to the marks that the system turn names; the server must take the call out of the text.
        form = r'<tool_call>\{"name": "get_weather", "arguments": \{"city": "[A-Z][a-z]{2,8}", "unit": "celsius"\}\}</tool_call>'
        choice = self.chat(tools=[WEATHER], max_completion_tokens=100, extra_body={"regex": form}).choices[0]
        (call,) = choice.message.tool_calls
        self.assertEqual((call.function.name, choice.finish_reason), ("get_weather", "tool_calls"))

    def test_a_field_that_is_not_honoured_is_a_warning(self):
        answer = self.chat(extra_body={"temprature": 0, "mirostat": 2})
        self.assertEqual(len(answer.model_extra["warnings"]), 2)
        self.assertIsNone((self.chat().model_extra or {}).get("warnings"))


class Drafts(OpenAITest):
    """Speculative decoding changes no answer that a client sees, and tells of itself in `usage`."""

    flags = ("--speculative-algorithm", "NGRAM", "--speculative-adaptive", "off",
             "--speculative-ngram-min-match-window-size", "1")

    def test_calls_schemas_and_words_are_those_without(self):
        schema = {"name": "person", "strict": True, "schema": Person.model_json_schema()}
        copied = [{"role": "user", "content": "Say twice: one two three four five six seven eight nine ten."}]
        accepted = 0
        for fields in (
            {"tools": [WEATHER, CLOCK], "tool_choice": "required", "parallel_tool_calls": False},
            {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0.8, "seed": 3},
            {"messages": StructuredOutput.ask, "response_format": {"type": "json_schema", "json_schema": schema}},
            {"messages": copied, "temperature": 0.7, "seed": 5},
            {"messages": copied},
        ):
            with self.subTest(fields=fields):
                fields = {"max_completion_tokens": 100, **fields}
                plain = self.chat(**fields, extra_body={"speculative": False})
                drafted = self.chat(**fields)
                a, b = plain.choices[0], drafted.choices[0]
                self.assertEqual((b.message.content, b.finish_reason), (a.message.content, a.finish_reason))
                calls = [[c.function.model_dump() for c in m.message.tool_calls or []] for m in (a, b)]
                self.assertEqual(calls[1], calls[0])
                self.assertEqual(drafted.usage.completion_tokens, plain.usage.completion_tokens)
                self.assertNotIn("speculative", plain.usage.model_extra or {})
                told = (drafted.usage.model_extra or {}).get("speculative")
                if told:
                    self.assertEqual(sum(told["accepted_per_position"]), told["accepted_tokens"])
                    accepted += told["accepted_tokens"]
        self.assertGreater(accepted, 20)


class AutoTools(OpenAITest):
    flags = ("--tool-call-parser", "hermes")

    def test_a_model_that_does_not_call_just_answers(self):
        choice = self.chat(tools=[WEATHER], tool_choice="auto").choices[0]
        self.assertIn("Paris", choice.message.content)
        self.assertIsNone(choice.message.tool_calls)
        self.assertEqual(choice.finish_reason, "stop")

    def test_a_call_in_the_text_becomes_a_call(self):
        # The model is held to the form that Hermes writes; the server must take it out of the text.
        form = r'<tool_call>\{"name": "get_weather", "arguments": \{"city": "[A-Z][a-z]{2,8}", "unit": "celsius"\}\}</tool_call>'
        choice = self.chat(tools=[WEATHER], max_completion_tokens=100, extra_body={"regex": form}).choices[0]
        (call,) = choice.message.tool_calls
        self.assertEqual((call.function.name, choice.finish_reason), ("get_weather", "tool_calls"))
        self.assertEqual(json.loads(call.function.arguments)["unit"], "celsius")
        self.assertFalse(choice.message.content)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=150)
    friends: list[str] = pydantic.Field(max_length=2)


class StructuredOutput(OpenAITest):
    ask = [{"role": "user", "content": "Tell me of a person, as JSON."}]

    def test_parse_gives_an_object_of_the_class(self):
        done = self.client.chat.completions.parse(
            model=MODEL, messages=self.ask, response_format=Person, temperature=0, max_completion_tokens=200)
        self.assertIsInstance(done.choices[0].message.parsed, Person)
        self.assertEqual(done.choices[0].finish_reason, "stop")
        with self.client.chat.completions.stream(
            model=MODEL, messages=self.ask, response_format=Person, temperature=0, max_completion_tokens=200
        ) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.parsed, done.choices[0].message.parsed)

    def test_an_answer_that_is_cut_says_so(self):
        with self.assertRaises(openai.LengthFinishReasonError):
            self.client.chat.completions.parse(
                model=MODEL, messages=self.ask, response_format=Person, temperature=0, max_completion_tokens=3)

    def test_json_schema(self):
        schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}, "sure": {"type": "boolean"}},
                  "required": ["answer", "sure"], "additionalProperties": False}
        out = self.chat(response_format={"type": "json_schema",
                                         "json_schema": {"name": "verdict", "strict": True, "schema": schema}})
        said = json.loads(out.choices[0].message.content)
        self.assertEqual(list(said), ["answer", "sure"])
        self.assertIn(said["answer"], ("yes", "no"))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(response_format={"type": "json_schema",
                                       "json_schema": {"name": "x", "schema": {"type": "nothing"}}})
        self.assertEqual(caught.exception.param, "response_format")

    def test_json_object(self):
        out = self.chat(self.ask, response_format={"type": "json_object"}, max_completion_tokens=300)
        if out.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(out.choices[0].message.content), dict)
        else:
            self.assertTrue(out.choices[0].message.content.lstrip().startswith("{"))

    def test_regex_and_choice(self):
        year = self.chat(extra_body={"regex": "[12][0-9]{3}"}).choices[0].message.content
        self.assertTrue(re.fullmatch("[12][0-9]{3}", year), year)
        choice = self.chat(extra_body={"structured_outputs": {"choice": ["Paris", "Rome"]}}).choices[0].message.content
        self.assertEqual(choice, "Paris")


class Errors(OpenAITest):
    def test_a_wrong_field_is_named(self):
        for fields, param in (
            ({"temperature": 3}, "temperature"),
            ({"top_p": "high"}, "top_p"),
            ({"n": 0}, "n"),
            ({"max_completion_tokens": -1}, "max_completion_tokens"),
            ({"messages": []}, "messages"),
            ({"messages": [{"content": "no role"}]}, "messages[0]"),
            ({"logit_bias": {"one": 1}}, "logit_bias"),
            ({"stream_options": {"include_usage": True}}, "stream_options"),
            ({"n": 129}, "n"),
        ):
            with self.subTest(fields=fields), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**fields)
            self.assertEqual(caught.exception.param, param)
            self.assertEqual(caught.exception.status_code, 400)
            self.assertTrue(caught.exception.request_id)

    def test_a_prompt_beyond_the_context(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete([5] * 9000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_another_model(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="gpt-9", messages=QUESTION)
        self.assertEqual(caught.exception.code, "model_not_found")

    def test_what_is_not_there(self):
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model=MODEL, input="text")
        with self.assertRaises(openai.NotFoundError):
            self.client.files.list()


class Keys(OpenAITest):
    flags = ("--api-key", "secret")

    def test_only_the_key_opens(self):
        for key in ("wrong", "secre", "secret2"):
            with self.subTest(key=key), self.assertRaises(openai.AuthenticationError) as caught:
                client_of(self.server, api_key=key).models.list()
            self.assertEqual(caught.exception.code, "invalid_api_key")
        self.assertEqual(client_of(self.server, api_key="secret").models.list().data[0].id, MODEL)


class Retries(unittest.TestCase):
    """Servers that are full, not there yet, or on their way out."""

    def start(self, *flags):
        server = Server(*flags)
        self.addCleanup(server.stop)
        return server

    @staticmethod
    def long_stream(client, tokens):
        return client.completions.create(model=MODEL, prompt="Once", max_tokens=tokens, stream=True, temperature=0,
                                         extra_body={"ignore_eos": True})

    def test_a_full_queue(self):
        server = self.start("--max-running-requests", "1", "--max-queued-requests", "1")
        client = client_of(server)
        running = self.long_stream(client, 4000)
        next(iter(running))
        waiting = threading.Thread(target=lambda: list(self.long_stream(client_of(server), 1)))
        waiting.start()
        try:
            self.assertTrue(soon(lambda: server.counter("vllm:num_requests_waiting") == 1))
            with self.assertRaises(openai.RateLimitError) as caught:
                client.completions.create(model=MODEL, prompt="Hello", max_tokens=1)
            self.assertEqual(caught.exception.response.headers["retry-after"], "1")

            # A client that tries again gets its answer once there is room.
            got = []
            patient = threading.Thread(target=lambda: got.append(
                client_of(server, max_retries=60).completions.with_raw_response.create(
                    model=MODEL, prompt="Hello", max_tokens=1)))
            refused = server.counter("reprise:http_responses_total", status="429")
            patient.start()
            self.assertTrue(soon(lambda: server.counter("reprise:http_responses_total", status="429") > refused))
        finally:
            running.close()
            waiting.join()
        patient.join()
        self.assertGreaterEqual(got[0].retries_taken, 1)
        self.assertEqual(got[0].parse().usage.completion_tokens, 1)

    def test_a_server_that_ends_refuses_the_new_and_finishes_the_old(self):
        server = self.start("--shutdown-timeout", "500")
        client = client_of(server)
        running = self.long_stream(client, 300)
        parts = iter(running)
        next(parts)
        ending = threading.Thread(target=server.stop)
        ending.start()

        def refused():
            try:
                client.completions.create(model=MODEL, prompt="Hello", max_tokens=1)
            except openai.InternalServerError as e:
                return e.status_code == 503 and e.response.headers["retry-after"] == "1"
            return False

        self.assertTrue(soon(refused))
        chunks = list(parts)
        ending.join()
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")

    def test_a_client_that_comes_before_the_model(self):
        begin = time.monotonic()
        server = Server(port=free_port(), wait=False)
        self.addCleanup(server.stop)
        answer = client_of(server, max_retries=100).completions.with_raw_response.create(
            model=MODEL, prompt="Hello", max_tokens=1)
        self.assertGreaterEqual(answer.retries_taken, 1)
        self.assertEqual(answer.parse().usage.completion_tokens, 1)
        self.assertLess(time.monotonic() - begin, 120)


def write_adapter(folder, scale):
    """A LoRA adapter of rank 2 for the output projections of SmolLM2-135M, as PEFT lays it out; numbers by a formula."""
    hidden, rank, layers, header, data = 576, 2, 30, {}, bytearray()
    for layer in range(layers):
        for matrix, shape in (("A", [rank, hidden]), ("B", [hidden, rank])):
            values = [scale * ((i * 37 + layer * 11 + len(data)) % 29 - 14) / 14 for i in range(rank * hidden)]
            begin = len(data)
            data += struct.pack(f"<{len(values)}f", *values)
            header[f"base_model.model.model.layers.{layer}.self_attn.o_proj.lora_{matrix}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": 4, "target_modules": ["o_proj"], "bias": "none"}))


class AdaptersTest(unittest.TestCase):
    def test_the_model_field_chooses_an_adapter(self):
        with tempfile.TemporaryDirectory() as held:
            folders = {name: pathlib.Path(held) / name for name in ("one", "two")}
            for number, folder in enumerate(folders.values()):
                write_adapter(folder, 0.06 * (number + 1))
            server = Server("--max-loras", "2", "--lora-modules", f"one={folders['one']}")
            self.addCleanup(server.stop)
            client = client_of(server)
            self.addCleanup(client.close)

            def say(model):
                answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0,
                                                        max_completion_tokens=16)
                self.assertEqual(answer.model, model)
                return answer.choices[0].message.content

            loaded = client.post("/load_lora_adapter", cast_to=str,
                                 body={"lora_name": "two", "lora_path": str(folders["two"])})
            self.assertIn("added successfully", loaded)
            models = {m.id: m.parent for m in client.models.list()}
            self.assertEqual(models, {MODEL: None, "one": MODEL, "two": MODEL})
            alone = {model: say(model) for model in models}
            self.assertEqual(len(set(alone.values())), 3, alone)
            with ThreadPoolExecutor(6) as pool:
                mixed = list(pool.map(say, list(models) * 2))
            self.assertEqual(mixed, list(alone.values()) * 2)
            client.post("/unload_lora_adapter", cast_to=str, body={"lora_name": "two"})
            with self.assertRaises(openai.NotFoundError):
                say("two")
            self.assertEqual(say("one"), alone["one"])


class Images(WithServer):
    model = VISION

    def test_chats_and_responses_say_what_the_reference_says(self):
        parts, want = asked_of_images(0)
        client = OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        urls = [p if isinstance(p, str) else f"data:image/{p[1]};base64,{base64.b64encode(p[0]).decode()}" for p in parts]
        content = [{"type": "image_url", "image_url": {"url": u, "detail": "auto"}} if u.startswith("data:") else
                   {"type": "text", "text": u} for u in urls]
        answer = client.chat.completions.create(
            model="qwen3_vl", messages=[{"role": "user", "content": content}], max_tokens=10, temperature=0)
        self.assertEqual(answer.choices[0].message.content, want["text"])
        self.assertEqual(answer.usage.prompt_tokens, want["prompt_tokens"])
        content = [{"type": "input_image", "image_url": u, "detail": "auto"} if u.startswith("data:") else
                   {"type": "input_text", "text": u} for u in urls]
        response = client.responses.create(
            model="qwen3_vl", input=[{"role": "user", "content": content}], max_output_tokens=10, temperature=0)
        self.assertEqual(response.output_text, want["text"])

    def test_videos_are_frames(self):
        want = json.loads((VISION / "video_answers.json").read_text())[0]
        clip = VISION.parents[1] / "videos" / "clip"
        frames = [base64.b64encode((clip / f"{i}.png").read_bytes()).decode() for i in range(5)]
        content = [{"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(frames)}}
                   if part["type"] == "video" else part for part in want["content"]]
        client = OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        answer = client.chat.completions.create(
            model="qwen3_vl", messages=[{"role": "user", "content": content}], max_tokens=8, temperature=0,
            extra_body={"mm_processor_kwargs": {"fps": [want["fps"]], "do_sample_frames": False}, "return_token_ids": True})
        self.assertEqual(answer.usage.prompt_tokens, want["prompt_tokens"])
        self.assertEqual(answer.choices[0].model_extra["token_ids"], want["tokens"])


if __name__ == "__main__":
    unittest.main()
