"""Anthropic's own Python client, unchanged, against `reprise serve`."""

import asyncio
import base64
import json
import unittest

import anthropic
from anthropic import Anthropic, AsyncAnthropic

from said import chat_says, generated
from support import MODEL, VISION, WithServer, asked_of_images

QUESTION = "What is the capital of France?"
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city now.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


class AnthropicTest(WithServer):
    flags = ("--api-key", "secret", "--context-length", "2048")

    def setUp(self):
        self.server.key = "secret"
        self.client = Anthropic(base_url=self.server.url, api_key="secret", max_retries=0)
        self.addCleanup(self.client.close)

    def ask(self, messages=None, **fields):
        messages = messages or [{"role": "user", "content": QUESTION}]
        # The newest client has no top_k and no temperature of its own any more.
        return {"model": MODEL, "max_tokens": 24, "messages": messages, "extra_body": {"temperature": 0}, **fields}


class Messages(AnthropicTest):
    def test_whole_streamed_and_async_say_what_generate_says(self):
        want = generated(QUESTION, 24)
        self.assertIn("Paris", want)
        with self.counted() as done:
            message = self.client.messages.create(**self.ask())
        self.assertEqual([b.type for b in message.content], ["text"])
        self.assertEqual(message.content[0].text, want)
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", MODEL))
        self.assertEqual((message.stop_reason, message.stop_sequence), ("end_turn", None))
        self.assertEqual(message.usage.input_tokens + message.usage.cache_read_input_tokens, done["prompt"])
        self.assertEqual(message.usage.output_tokens, done["generated"])

        with self.client.messages.stream(**self.ask()) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertEqual(final.content[0].text, want)
        self.assertEqual(final.usage.output_tokens, message.usage.output_tokens)
        # The prompt has been read before, and the first event knew.
        self.assertEqual(final.usage.input_tokens, 1)
        self.assertEqual(final.usage.cache_read_input_tokens, done["prompt"] - 1)
        self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))
        raw = [event.type for event in self.client.messages.create(stream=True, **self.ask())]
        self.assertEqual([k for k in raw if k != "content_block_delta"],
                         ["message_start", "content_block_start", "content_block_stop", "message_delta",
                          "message_stop"])

        async def ask():
            async with AsyncAnthropic(base_url=self.server.url, api_key="secret", max_retries=0) as client:
                async with client.messages.stream(**self.ask()) as stream:
                    return "".join([text async for text in stream.text_stream])

        self.assertEqual(asyncio.run(ask()), want)

    def test_a_conversation_with_a_system_prompt(self):
        messages = [{"role": "user", "content": [{"type": "text", "text": "My name is Ada."}]},
                    {"role": "assistant", "content": "Hello Ada."},
                    {"role": "user", "content": "What is my name?"}]
        message = self.client.messages.create(**self.ask(messages, system="Answer with one word."))
        want = chat_says(self.server, [{"role": "system", "content": "Answer with one word."},
                                       {"role": "user", "content": "My name is Ada."}, *messages[1:]], 24)
        self.assertEqual(message.content[0].text, want)
        beta = self.client.beta.messages.create(
            **self.ask(messages, system=[{"type": "text", "text": "Answer with one word.",
                                          "cache_control": {"type": "ephemeral"}}]))
        self.assertEqual(beta.content[0].text, message.content[0].text)

    def test_reasons_to_stop(self):
        self.assertEqual(self.client.messages.create(**self.ask(max_tokens=2)).stop_reason, "max_tokens")
        stopped = self.client.messages.create(**self.ask(stop_sequences=["Paris"]))
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "Paris"))
        self.assertNotIn("Paris", stopped.content[0].text)

    def test_counts_the_tokens_that_a_message_then_has(self):
        for more in ({}, {"system": "Be brief."}, {"tools": [WEATHER]}):
            counted = self.client.messages.count_tokens(
                model=MODEL, messages=[{"role": "user", "content": QUESTION}], **more)
            usage = self.client.messages.create(**self.ask(max_tokens=1, **more)).usage
            self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)


class Tools(AnthropicTest):
    def test_a_call_that_must_come_and_its_result(self):
        with self.client.messages.stream(
                **self.ask([{"role": "user", "content": "What is the weather in Paris?"}], max_tokens=200,
                           tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"})) as stream:
            message = stream.get_final_message()
        self.assertEqual(message.stop_reason, "tool_use")
        call, = message.content
        self.assertEqual((call.type, call.name), ("tool_use", "get_weather"))
        self.assertTrue(call.id.startswith("toolu_"))
        self.assertEqual(set(call.input), {"city", "unit"})
        self.assertIn(call.input["unit"], ("celsius", "fahrenheit"))
        whole = self.client.messages.create(
            **self.ask([{"role": "user", "content": "What is the weather in Paris?"}], max_tokens=200,
                       tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"}))
        self.assertEqual(whole.content[0].input, call.input)
        after = self.client.messages.create(**self.ask(
            [{"role": "user", "content": "What is the weather in Paris?"},
             {"role": "assistant", "content": message.content},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}]}],
            tools=[WEATHER]))
        self.assertEqual(after.content[0].type, "text")

    def test_an_answer_held_to_a_schema(self):
        schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                  "additionalProperties": False}
        message = self.client.messages.create(
            **self.ask(output_config={"format": {"type": "json_schema", "schema": schema}}))
        self.assertEqual(json.loads(message.content[0].text), {"city": "Paris"})


class Errors(AnthropicTest):
    def test_each_is_the_clients_own(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.messages.create(**{**self.ask(), "model": "claude-9"})
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        self.assertEqual(caught.exception.request_id, caught.exception.body["request_id"])
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.client.messages.create(**self.ask([{"role": "user", "content": [{"type": "image", "source": {
                "type": "url", "url": "https://a.example/b.png"}}]}]))
        self.assertIn("messages[0].content[0]", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.AuthenticationError):
            Anthropic(base_url=self.server.url, api_key="wrong", max_retries=0).messages.create(**self.ask())
        bearer = Anthropic(base_url=self.server.url, auth_token="secret", max_retries=0)
        self.assertTrue(bearer.messages.create(**self.ask()).content)
        with self.assertRaises(anthropic.BadRequestError):
            self.client.messages.create(**self.ask([{"role": "user", "content": "a " * 3000}]))

    def test_the_model(self):
        model, = self.client.models.list()
        self.assertEqual((model.id, model.type), (MODEL, "model"))
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)
        self.assertGreater(model.created_at.year, 2020)


class Images(WithServer):
    model = VISION

    def test_messages_say_what_the_reference_says(self):
        parts, want = asked_of_images(0)
        client = Anthropic(base_url=self.server.url, api_key="none", max_retries=0)
        self.addCleanup(client.close)
        content = [{"type": "text", "text": p} if isinstance(p, str) else
                   {"type": "image", "source": {"type": "base64", "media_type": "image/" + p[1],
                                                "data": base64.b64encode(p[0]).decode()}} for p in parts]
        messages = [{"role": "user", "content": content}]
        counted = client.messages.count_tokens(model="qwen3_vl", messages=messages)
        self.assertEqual(counted.input_tokens, want["prompt_tokens"])
        message = client.messages.create(model="qwen3_vl", max_tokens=10, messages=messages, extra_body={"temperature": 0})
        self.assertEqual(message.content[0].text, want["text"])


if __name__ == "__main__":
    unittest.main()
