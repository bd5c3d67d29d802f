"""lm-evaluation-harness against `reprise serve`: generation and log-likelihood, on tasks of our own data."""

import glob
import json
import pathlib
import tempfile
import unittest

from support import MODEL, PROGRAMS, WithServer

TASKS = pathlib.Path(__file__).resolve().parent / "tasks"


class LmEval(WithServer):
    def evaluate(self, model, route, task, tokenizer, *more):
        """The results of a task, and what was sent and answered."""
        with tempfile.TemporaryDirectory() as folder:
            # The harness looks for data relative to where it runs, so the tasks get the whole path.
            data = str(TASKS / "capitals.jsonl")
            for path in TASKS.glob("*.yaml"):
                (pathlib.Path(folder) / path.name).write_text(path.read_text().replace("capitals.jsonl", data))
            arguments = f"model={MODEL},base_url={self.server.url}{route},num_concurrent=4,max_retries=1,{tokenizer}"
            self.run_client(PROGRAMS / "lm_eval", "run", "--model", model, "--model_args", arguments, "--tasks", task,
                            "--include_path", folder, "--output_path", folder + "/out", "--log_samples", *more,
                            env={"HF_HOME": folder})
            (results,) = glob.glob(folder + "/out/**/results_*.json", recursive=True)
            (samples,) = glob.glob(folder + "/out/**/samples_*.jsonl", recursive=True)
            samples = [json.loads(line) for line in pathlib.Path(samples).read_text().splitlines()]
            return json.loads(pathlib.Path(results).read_text())["results"][task], samples

    def completed(self, prompt):
        import requests

        answer = requests.post(self.server.url + "/v1/completions", timeout=60, json={
            "model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0, "stop": ["\n", "."]})
        return answer.json()["choices"][0]["text"]

    def test_generation(self):
        for tokenizer in ("tokenizer_backend=None,tokenized_requests=False", "tokenizer_backend=remote"):
            with self.subTest(tokenizer=tokenizer), self.counted() as done:
                result, samples = self.evaluate("local-completions", "/v1/completions", "capital_said", tokenizer)
            with self.subTest(tokenizer=tokenizer):
                self.assertEqual(len(samples), 12)
                self.assertEqual((done["stop"] + done["length"], done["abort"]), (12, 0))
                self.assertGreaterEqual(result["exact_match,first"], 0.5)
                for s in samples:
                    prompt = f"The capital of {s['doc']['country']} is"
                    self.assertEqual(s["resps"][0][0], self.completed(prompt))

    def test_log_likelihood(self):
        with self.counted() as done:
            result, samples = self.evaluate("local-completions", "/v1/completions", "capital_chosen",
                                            "tokenizer_backend=remote")
        self.assertEqual(len(samples), 12)
        self.assertEqual((done["length"], done["abort"]), (48, 0))
        self.assertGreaterEqual(result["acc,none"], 0.75)
        for s in samples:
            for likelihood, _ in (r[0] for r in s["resps"]):
                self.assertLess(float(likelihood), 0)

    def test_chat(self):
        with self.counted() as done:
            _, samples = self.evaluate("local-chat-completions", "/v1/chat/completions", "capital_said",
                                       "tokenized_requests=False", "--apply_chat_template")
        self.assertEqual(len(samples), 12)
        self.assertEqual((done["stop"] + done["length"], done["abort"]), (12, 0))
        self.assertTrue(all(s["resps"][0][0] for s in samples))


if __name__ == "__main__":
    unittest.main()
