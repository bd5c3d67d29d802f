"""LiteLLM, unchanged, against `reprise serve`: it speaks OpenAI's, Anthropic's and Ollama's API."""

import os
import unittest

# It asks a server for its list of prices otherwise.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402

from said import generated  # noqa: E402
from support import MODEL, WithServer  # noqa: E402

QUESTION = "What is the capital of France?"


class LiteLlm(WithServer):
    def ask(self, model, base, **fields):
        return litellm.completion(model=model, api_base=self.server.url + base, api_key="none", temperature=0,
                                  max_tokens=24, num_retries=0, messages=[{"role": "user", "content": QUESTION}],
                                  **fields)

    def test_every_dialect_says_the_same(self):
        want = generated(QUESTION, 24)
        for model, base in ((f"openai/{MODEL}", "/v1"), (f"anthropic/{MODEL}", ""), (f"ollama_chat/{MODEL}", "")):
            with self.subTest(model=model):
                whole = self.ask(model, base)
                self.assertEqual(whole.choices[0].message.content, want)
                self.assertGreater(whole.usage.prompt_tokens, 20)
                parts = list(self.ask(model, base, stream=True))
                self.assertEqual("".join(p.choices[0].delta.content or "" for p in parts), want)
                self.assertEqual(parts[-1].choices[0].finish_reason, "stop")

    def test_responses(self):
        response = litellm.responses(model=f"openai/{MODEL}", api_base=self.server.url + "/v1", api_key="none",
                                     temperature=0, max_output_tokens=24, input=QUESTION)
        self.assertEqual(response.output[-1].content[0].text, generated(QUESTION, 24))


if __name__ == "__main__":
    unittest.main()
