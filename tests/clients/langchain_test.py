"""LangChain's packages for OpenAI, Anthropic and Ollama, unchanged, against `reprise serve`."""

import unittest

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from said import generated
from support import MODEL, WithServer

QUESTION = "What is the capital of France?"


class City(BaseModel):
    """The city that is meant."""

    name: str


class LangChain(WithServer):
    def models(self):
        url = self.server.url
        return {
            "openai": ChatOpenAI(model=MODEL, base_url=url + "/v1", api_key="none", temperature=0, max_tokens=24,
                                 max_retries=0),
            "responses": ChatOpenAI(model=MODEL, base_url=url + "/v1", api_key="none", temperature=0, max_tokens=24,
                                    use_responses_api=True, max_retries=0),
            "anthropic": ChatAnthropic(model=MODEL, base_url=url, api_key="none", max_tokens=24, max_retries=0,
                                       model_kwargs={"extra_body": {"temperature": 0}}),
            "ollama": ChatOllama(model=MODEL, base_url=url, temperature=0, num_predict=24),
        }

    def test_every_dialect_says_the_same(self):
        want = generated(QUESTION, 24)
        for name, model in self.models().items():
            with self.subTest(name):
                answer = model.invoke(QUESTION)
                self.assertEqual(answer.text, want)
                self.assertGreater(answer.usage_metadata["input_tokens"], 20)
                self.assertEqual("".join(part.text for part in model.stream(QUESTION)), want)

    def test_calls_of_tools(self):
        for name, model in self.models().items():
            if name == "ollama":  # its API cannot say that a call must come
                continue
            with self.subTest(name):
                model.max_tokens = 100
                answer = model.bind_tools([City], tool_choice="City").invoke(QUESTION)
                call, = answer.tool_calls
                self.assertEqual(call["name"], "City")
                self.assertEqual(set(call["args"]), {"name"})

    def test_structured_output(self):
        model = ChatOllama(model=MODEL, base_url=self.server.url, temperature=0, num_predict=100)
        self.assertIsInstance(model.with_structured_output(City, method="json_schema").invoke(QUESTION), City)


if __name__ == "__main__":
    unittest.main()
