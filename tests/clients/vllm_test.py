"""`vllm bench serve` against `reprise serve`, over both of OpenAI's routes."""

import pathlib
import tempfile
import unittest

from support import MODEL, PROGRAMS, WithServer, read_json, tokenizer_folder

REQUESTS, PROMPT, ANSWER = 32, 64, 16


class BenchServe(WithServer):
    def test_both_routes(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = tokenizer_folder(folder)
            for backend, route in (("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")):
                with self.subTest(backend=backend), self.counted() as done:
                    out = pathlib.Path(folder) / f"{backend}.json"
                    self.run_client(
                        PROGRAMS / "vllm", "bench", "serve", "--backend", backend, "--base-url", self.server.url,
                        "--endpoint", route, "--model", MODEL, "--tokenizer", tokenizer, "--dataset-name", "random",
                        "--random-input-len", PROMPT, "--random-output-len", ANSWER, "--num-prompts", REQUESTS,
                        "--max-concurrency", 8, "--ignore-eos", "--temperature", 0, "--disable-tqdm", "--save-result",
                        "--result-dir", folder, "--result-filename", out.name, "--ready-check-timeout-sec", 0)
                    told = read_json(out)
                with self.subTest(backend=backend):
                    self.assertEqual((told["completed"], told.get("failed", 0)), (REQUESTS, 0))
                    self.assertEqual(told["total_output_tokens"], REQUESTS * ANSWER)
                    self.assertEqual(done["generated"], told["total_output_tokens"])
                    self.assertEqual(done["prompt"], told["total_input_tokens"])
                    self.assertEqual((done["length"], done["stop"], done["abort"]), (REQUESTS, 0, 0))
                    self.assertGreater(told["median_ttft_ms"], 0)
                    self.assertGreater(told["median_itl_ms"], 0)


if __name__ == "__main__":
    unittest.main()
