"""guidellm against `reprise serve`."""

import pathlib
import tempfile
import unittest

from support import MODEL, PROGRAMS, WithServer, read_json, tokenizer_folder

REQUESTS, ANSWER = 32, 16


class GuideLLM(WithServer):
    def test_both_routes(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = tokenizer_folder(folder)
            for route in ("/v1/completions", "/v1/chat/completions"):
                with self.subTest(route=route), self.counted() as done:
                    out = pathlib.Path(folder) / "out.json"
                    self.run_client(
                        PROGRAMS / "guidellm", "run", "--backend",
                        f"kind=openai_http,target={self.server.url},model={MODEL},request_format={route}",
                        "--profile", "kind=concurrent,streams=8", "--constraint", f"kind=max_requests,count={REQUESTS}",
                        "--tokenizer", f"kind=hf_auto,model={tokenizer}",
                        "--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={ANSWER}",
                        "--output", f"kind=json,path={out}", "--output", "kind=console",
                        "--disable-console-interactive")
                    (told,) = read_json(out)["benchmarks"]
                with self.subTest(route=route):
                    totals = told["metrics"]["request_totals"]
                    self.assertEqual((totals["successful"], totals["errored"], totals["incomplete"]), (REQUESTS, 0, 0))
                    answered = told["requests"]["successful"]
                    self.assertEqual({r["output_tokens"] for r in answered}, {ANSWER})
                    self.assertEqual(done["generated"], sum(r["output_tokens"] for r in answered))
                    self.assertEqual(done["prompt"], sum(r["prompt_tokens"] for r in answered))
                    self.assertEqual((done["length"], done["abort"]), (REQUESTS, 0))
                    self.assertEqual([r["response_id"] for r in answered if not r["response_id"]], [])


if __name__ == "__main__":
    unittest.main()
