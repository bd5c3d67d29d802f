"""The Responses API of OpenAI's own Python client, unchanged, against `reprise serve`."""

import asyncio
import json
import unittest
from typing import Literal

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from said import chat_says, generated
from support import MODEL, WithServer

QUESTION = "What is the capital of France?"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city now.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(BaseModel):
    city: Literal["Paris", "Rome"]


class Responses(WithServer):
    def setUp(self):
        self.client = OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def ask(self, **fields):
        return {"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 24, **fields}

    def test_whole_streamed_and_async_say_what_generate_says(self):
        want = generated(QUESTION, 24)
        with self.counted() as done:
            whole = self.client.responses.create(**self.ask())
        self.assertEqual(whole.output_text, want)
        self.assertEqual((whole.object, whole.status, whole.error), ("response", "completed", None))
        self.assertEqual((whole.usage.input_tokens, whole.usage.output_tokens), (done["prompt"], done["generated"]))
        events = list(self.client.responses.create(stream=True, **self.ask()))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        kinds = [e.type for e in events if not e.type.endswith(".delta")]
        self.assertEqual(kinds, [
            "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
            "response.output_text.done", "response.content_part.done", "response.output_item.done",
            "response.completed"])
        with self.client.responses.stream(**self.ask()) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual((text, final.output_text), (want, want))
        self.assertEqual(final.usage.input_tokens_details.cached_tokens, done["prompt"] - 1)

        async def ask():
            async with AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0) as client:
                async with client.responses.stream(**self.ask()) as stream:
                    return (await stream.get_final_response()).output_text

        self.assertEqual(asyncio.run(ask()), want)

    def test_a_conversation_that_the_client_keeps(self):
        first = self.client.responses.create(**self.ask(input="My name is Ada."))
        turns = [{"role": "user", "content": "My name is Ada."}, *first.output,
                 {"role": "user", "content": "What is my name?"}]
        second = self.client.responses.create(**self.ask(input=turns, instructions="Answer with one word."))
        want = chat_says(self.server, [{"role": "system", "content": "Answer with one word."},
                                       {"role": "user", "content": "My name is Ada."},
                                       {"role": "assistant", "content": first.output_text},
                                       {"role": "user", "content": "What is my name?"}], 24)
        self.assertEqual(second.output_text, want)
        self.assertEqual(second.instructions, "Answer with one word.")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(**self.ask(previous_response_id=first.id))
        self.assertEqual(caught.exception.param, "previous_response_id")
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)

    def test_parse(self):
        parsed = self.client.responses.parse(text_format=City, **self.ask())
        self.assertEqual(parsed.output_parsed, City(city="Paris"))
        with self.client.responses.stream(text_format=City, **self.ask()) as stream:
            self.assertEqual(stream.get_final_response().output_parsed, City(city="Paris"))

    def test_parse_or_tools(self):
        # An answer that is held to a class may be a call instead; nothing else. Of several calls the model makes some
        # until the limit, which cuts the last.
        for said in ("What is the capital of France?", "Call get_weather to find out how it is in Paris."):
            answer = self.client.responses.parse(text_format=City, **self.ask(input=said, tools=[WEATHER],
                                                                              parallel_tool_calls=False,
                                                                              max_output_tokens=100))
            for item in answer.output:
                if item.type == "function_call":
                    self.assertEqual((item.name, set(json.loads(item.arguments))), ("get_weather", {"city"}))
                else:
                    self.assertIsInstance(item.content[0].parsed, City)
            self.assertTrue(answer.output)

    def test_tools(self):
        question = [{"role": "user", "content": "What is the weather in Paris?"}]
        fields = self.ask(input=question, tools=[WEATHER], tool_choice={"type": "function", "name": "get_weather"},
                          max_output_tokens=100)
        whole = self.client.responses.create(**fields)
        call, = whole.output
        self.assertEqual((call.type, call.name), ("function_call", "get_weather"))
        self.assertEqual(set(json.loads(call.arguments)), {"city"})
        with self.client.responses.stream(**fields) as stream:
            deltas = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta")
            self.assertEqual(stream.get_final_response().output[0].arguments, call.arguments)
        self.assertEqual(deltas, call.arguments)
        after = self.client.responses.create(**self.ask(tools=[WEATHER], input=[
            *question, call, {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}]))
        self.assertTrue(after.output_text)

    def test_limits_and_what_is_left_out(self):
        cut = self.client.responses.create(**self.ask(max_output_tokens=2))
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        raw = self.client.responses.with_raw_response.create(**self.ask(tools=[{"type": "web_search"}]))
        self.assertEqual(raw.headers["x-reprise-warnings"], "tools.web_search")
        logs = self.client.responses.create(
            **self.ask(include=["message.output_text.logprobs"], top_logprobs=2)).output[0].content[0].logprobs
        self.assertEqual(len(logs[0].top_logprobs), 2)


if __name__ == "__main__":
    unittest.main()
