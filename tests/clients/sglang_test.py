"""sglang.bench_serving against `reprise serve`, over SGLang's own route and OpenAI's two."""

import json
import pathlib
import tempfile
import unittest

from support import MODEL, PROGRAMS, WithServer, tokenizer_folder

REQUESTS, PROMPT, ANSWER = 32, 64, 16


class BenchServing(WithServer):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tokenizer = tokenizer_folder(folder.name)

    def test_every_form(self):
        prompts = {}
        for name, backend, *more in (
            ("texts", "sglang-oai"),
            ("chats", "sglang-oai-chat"),
            ("native", "sglang"),
            ("ids", "sglang", "--tokenize-prompt"),
            ("vllm", "vllm"),
        ):
            with self.subTest(name=name), self.counted() as done:
                out = self.folder / f"{name}.jsonl"
                self.run_client(
                    PROGRAMS / "python", "-m", "sglang.bench_serving", "--backend", backend, "--base-url",
                    self.server.url, "--model", MODEL, "--tokenizer", self.tokenizer, "--dataset-name", "random-ids",
                    "--random-input-len", PROMPT, "--random-output-len", ANSWER, "--random-range-ratio", 1,
                    "--num-prompts", REQUESTS, "--max-concurrency", 8, "--warmup-requests", 0, "--disable-tqdm",
                    "--output-file", out, *more)
                told = json.loads(out.read_text())
            prompts[name] = done["prompt"]
            with self.subTest(name=name):
                self.assertEqual(told["completed"], REQUESTS)
                self.assertEqual(told["total_output_tokens"], REQUESTS * ANSWER)
                self.assertEqual(done["generated"], told["total_output_tokens"])
                self.assertEqual((done["length"], done["stop"], done["abort"]), (REQUESTS, 0, 0))
                self.assertGreater(told["median_ttft_ms"], 0)
                self.assertGreater(told["median_itl_ms"], 0)
                self.assertEqual(told["total_input_tokens"], REQUESTS * PROMPT)
        # It draws ids, and what it sends as text may have other ids; only sent as ids they are counted alike.
        self.assertEqual(prompts["ids"], REQUESTS * PROMPT)
        self.assertEqual(prompts["texts"], prompts["native"])
        self.assertEqual(prompts["texts"], prompts["vllm"])


if __name__ == "__main__":
    unittest.main()
