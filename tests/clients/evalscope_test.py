"""evalscope perf against `reprise serve`: chats, texts and token ids, streamed and whole."""

import pathlib
import tempfile
import unittest

from support import MODEL, PROGRAMS, WithServer, read_json, tokenizer_folder

REQUESTS, PROMPT, ANSWER = 32, 64, 16


class EvalScope(WithServer):
    def test_every_form(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = tokenizer_folder(folder)
            for name, route, more in (
                ("chat", "/v1/chat/completions", ("--stream",)),
                ("whole", "/v1/chat/completions", ("--no-stream",)),
                ("texts", "/v1/completions", ("--stream",)),
                ("ids", "/v1/completions", ("--stream", "--tokenize-prompt")),
            ):
                with self.subTest(name=name), self.counted() as done:
                    self.run_client(
                        PROGRAMS / "evalscope", "perf", "--model", MODEL, "--url", self.server.url + route, "--api",
                        "openai", "--number", REQUESTS, "--parallel", 8, "--dataset", "random", "--tokenizer-path",
                        tokenizer, "--min-prompt-length", PROMPT, "--max-prompt-length", PROMPT, "--prefix-length", 0,
                        "--max-tokens", ANSWER, "--min-tokens", ANSWER, "--extra-args", '{"ignore_eos": true}',
                        "--temperature", 0, "--no-test-connection", "--no-timestamp", "--name", name,
                        "--outputs-dir", folder, *more)
                    told = read_json(self.summary(folder, name))
                with self.subTest(name=name):
                    self.assertEqual((told["Success Requests"], told["Failed Requests"]), (REQUESTS, 0))
                    self.assertEqual(told["Avg Output Tokens"], ANSWER)
                    self.assertEqual(done["generated"], REQUESTS * ANSWER)
                    self.assertEqual(done["prompt"], told["Avg Input Tokens"] * REQUESTS)
                    self.assertEqual((done["length"], done["abort"]), (REQUESTS, 0))

    def summary(self, folder, name):
        (found,) = pathlib.Path(folder).glob(f"{name}/**/benchmark_summary.json")
        return found


if __name__ == "__main__":
    unittest.main()
