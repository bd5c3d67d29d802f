"""The clients that fetch vectors and rankings, unchanged, against `reprise serve` with tiny models of the tests.

What they get is held to `reprise embed` of the same model, to the bit, and to what transformers gave
(tests/data/encoders). OpenAI's client, LangChain's and Ollama's ask for vectors, Cohere's ranks.
"""

import asyncio
import base64
import json
import math
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import cohere
import numpy
import ollama
import openai
from langchain_openai import OpenAIEmbeddings

from support import BINARY, ROOT, WithServer

ENCODERS = ROOT / "tests/data/encoders"
TEXTS = ["A graph is captured once.", "Graphs, captured & replayed: 12 times!", "Überall gleiche Bits 文字 zzzz"]
QUERY = "what is captured?"
DOCUMENTS = ["A graph is captured once.", "The sea is blue.", "once upon a time " * 15]


def fp32(rows):
    return numpy.array(rows, dtype=numpy.float32).tolist()


def command(model, *flags):
    """What the command says of the model, as JSON."""
    done = subprocess.run([str(BINARY), "embed", "--json", "--model-path", str(model), "--dtype", "float32", "--threads",
                           "1", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def vectors(model, texts, *flags):
    return fp32(command(model, *(part for text in texts for part in ("--text", text)), *flags)["embeddings"])


class Served(WithServer):
    flags = ("--dtype", "float32", "--served-model-name", "m")

    def openai(self, kind=openai.OpenAI):
        return kind(base_url=self.server.url + "/v1", api_key="none", max_retries=0)


class Vectors(Served):
    model = ENCODERS / "bert_mean"

    def setUp(self):
        self.want = vectors(self.model, TEXTS)

    def test_openai_gets_the_bits_of_the_command(self):
        with self.openai() as client:
            for more in ({"encoding_format": "float"}, {"encoding_format": "base64"}, {}):
                answer = client.embeddings.create(model="m", input=TEXTS, **more)
                rows = [d.embedding for d in answer.data]
                if more.get("encoding_format") == "base64":  # the caller asked for it, so it is not decoded
                    rows = [numpy.frombuffer(base64.b64decode(row), "<f4") for row in rows]
                self.assertEqual(fp32(rows), self.want, more)
                self.assertEqual([d.index for d in answer.data], [0, 1, 2])
                self.assertEqual((answer.object, answer.model), ("list", "m"))
                self.assertEqual(answer.usage.prompt_tokens, 8 + 14 + 23)
                self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens)
            alone = client.embeddings.create(model="m", input=TEXTS[1]).data
            self.assertEqual(fp32([alone[0].embedding]), self.want[1:2])

        async def ask():
            async with self.openai(openai.AsyncOpenAI) as asking:
                answers = await asyncio.gather(*(asking.embeddings.create(model="m", input=text) for text in TEXTS))
                return fp32([answer.data[0].embedding for answer in answers])

        self.assertEqual(asyncio.run(ask()), self.want)

    def test_they_are_the_numbers_of_transformers(self):
        golden = json.loads((self.model / "texts.json").read_text())
        with self.openai() as client:
            by_ids = client.embeddings.create(model="m", input=[g["ids"] for g in golden])
        for got, g in zip(by_ids.data, golden, strict=True):
            for a, b in zip(got.embedding, g["embedding"], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4)

    def test_errors_are_the_classes_of_openai(self):
        with self.openai() as client:
            for param, more in (("dimensions", {"dimensions": 8}), ("input[0]", {"input": [[10**6]]}),
                                ("input", {"input": "once upon a time " * 400}), ("input", {"input": []})):
                with self.assertRaises(openai.BadRequestError) as caught:
                    client.embeddings.create(**{"model": "m", "input": TEXTS, **more})
                self.assertEqual(caught.exception.param, param)
            with self.assertRaises(openai.BadRequestError):
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])

    def test_langchain_gets_the_same(self):
        url = self.server.url + "/v1"
        # Otherwise it would send the ids of OpenAI's own tokenizer.
        client = OpenAIEmbeddings(model="m", base_url=url, api_key="none", check_embedding_ctx_length=False,
                                  max_retries=0)
        self.assertEqual(fp32(client.embed_documents(TEXTS)), self.want)
        self.assertEqual(fp32([client.embed_query(TEXTS[0])]), self.want[:1])
        self.assertEqual(fp32(asyncio.run(client.aembed_documents(TEXTS))), self.want)

    def test_ollama_gets_the_same(self):
        client = ollama.Client(host=self.server.url)
        answer = client.embed(model="m", input=TEXTS)
        self.assertEqual(fp32(answer.embeddings), self.want)
        self.assertEqual(answer.prompt_eval_count, 8 + 14 + 23)
        self.assertGreater(answer.total_duration, 0)
        self.assertEqual(fp32(client.embed(model="m:latest", input=TEXTS[0]).embeddings), self.want[:1])
        self.assertEqual(fp32([client.embeddings(model="m", prompt=TEXTS[0]).embedding]), self.want[:1])
        self.assertEqual(client.show("m").capabilities, ["embedding"])
        longer = "once upon a time " * 400
        self.assertEqual(client.embed(model="m", input=longer).prompt_eval_count, 100)
        for code, call in ((400, lambda: client.embed(model="m", input=longer, truncate=False)),
                           (400, lambda: client.embed(model="m", input=TEXTS, dimensions=8)),
                           (404, lambda: client.embed(model="other", input="a"))):
            with self.assertRaises(ollama.ResponseError) as caught:
                call()
            self.assertEqual(caught.exception.status_code, code, caught.exception.error)

    def test_cohere_ranks_by_the_cosine(self):
        query, *rows = vectors(self.model, [QUERY, *DOCUMENTS])
        want = {i: math.fsum(a * b for a, b in zip(query, row, strict=True)) for i, row in enumerate(rows)}
        answer = cohere.ClientV2("none", base_url=self.server.url).rerank(model="m", query=QUERY, documents=DOCUMENTS)
        self.assertEqual([r.index for r in answer.results], sorted(want, key=want.get, reverse=True))
        for r in answer.results:
            self.assertAlmostEqual(r.relevance_score, want[r.index], places=5)


class CutVectors(Served):
    """A decoder whose vectors may be cut."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = pathlib.Path(cls.folder.name) / "m"
        shutil.copytree(ENCODERS / "qwen3_last", cls.model)
        config = json.loads((cls.model / "config.json").read_text())
        (cls.model / "config.json").write_text(json.dumps({**config, "is_matryoshka": True}))
        super().setUpClass()

    def test_openai_langchain_and_ollama_get_the_bits_of_the_command(self):
        want = vectors(self.model, TEXTS, "--dimensions", "16")
        self.assertEqual({len(row) for row in want}, {16})
        with self.openai() as client:
            rows = [d.embedding for d in client.embeddings.create(model="m", input=TEXTS, dimensions=16).data]
            whole = [d.embedding for d in client.embeddings.create(model="m", input=TEXTS).data]
        self.assertEqual(fp32(rows), want)
        self.assertEqual(fp32(whole), vectors(self.model, TEXTS))
        for row, long in zip(rows, whole, strict=True):
            self.assertAlmostEqual(math.hypot(*row), 1, places=6)
            length = math.hypot(*long[:16])
            for a, b in zip(row, long, strict=False):
                self.assertAlmostEqual(a, b / length, places=6)
        chain = OpenAIEmbeddings(model="m", base_url=self.server.url + "/v1", api_key="none", dimensions=16,
                                 check_embedding_ctx_length=False, max_retries=0)
        self.assertEqual(fp32(chain.embed_documents(TEXTS)), want)
        self.assertEqual(fp32(ollama.Client(host=self.server.url).embed(model="m", input=TEXTS, dimensions=16).embeddings),
                         want)


class Ranking(Served):
    model = ENCODERS / "bert_scores"

    def scores(self, documents):
        return command(self.model, "--query", QUERY, *(part for d in documents for part in ("--text", d)))["scores"]

    def clients(self):
        return {"v1": cohere.Client("none", base_url=self.server.url),
                "v2": cohere.ClientV2("none", base_url=self.server.url)}

    def test_both_versions_rank_as_the_command_scores(self):
        want = self.scores(DOCUMENTS)
        best = sorted(range(3), key=lambda i: -want[i])
        for version, client in self.clients().items():
            with self.subTest(version):
                answer = client.rerank(model="m", query=QUERY, documents=DOCUMENTS)
                self.assertEqual([r.index for r in answer.results], best)
                self.assertEqual(fp32([r.relevance_score for r in answer.results]), fp32([want[i] for i in best]))
                self.assertTrue(answer.id)
                self.assertEqual(answer.meta.billed_units.search_units, 1)
                first, = client.rerank(model="m", query=QUERY, documents=DOCUMENTS, top_n=1).results
                self.assertEqual((first.index, first.relevance_score), (best[0], answer.results[0].relevance_score))

        async def ask():
            asking = cohere.AsyncClientV2("none", base_url=self.server.url)
            return [r.index for r in (await asking.rerank(model="m", query=QUERY, documents=DOCUMENTS)).results]

        self.assertEqual(asyncio.run(ask()), best)

    def test_the_first_version_sends_objects_and_gets_documents(self):
        client = self.clients()["v1"]
        want = self.scores(DOCUMENTS)
        documents = [{"title": "a", "text": d} for d in DOCUMENTS]
        answer = client.rerank(model="m", query=QUERY, documents=documents, return_documents=True)
        self.assertEqual(fp32([r.relevance_score for r in answer.results]),
                         fp32(sorted(want, reverse=True)))
        self.assertEqual([r.document.text for r in answer.results], [DOCUMENTS[r.index] for r in answer.results])
        by_title = client.rerank(model="m", query=QUERY, documents=[{"title": d, "text": "a"} for d in DOCUMENTS],
                                 rank_fields=["title"])
        self.assertEqual([r.relevance_score for r in by_title.results], [r.relevance_score for r in answer.results])
        self.assertIsNone(by_title.results[0].document)

    def test_the_second_version_bounds_documents(self):
        answer = self.clients()["v2"].rerank(model="m", query=QUERY, documents=DOCUMENTS[2:], max_tokens_per_doc=5)
        self.assertEqual(fp32([answer.results[0].relevance_score]), fp32(self.scores(["once upon a time"])))

    def test_errors_are_the_classes_of_cohere(self):
        for version, client in self.clients().items():
            with self.subTest(version):
                with self.assertRaises(cohere.BadRequestError) as caught:
                    client.rerank(model="m", query=QUERY, documents=[])
                self.assertIn("a list of 1 to 2048 texts", str(caught.exception.body))
        with self.assertRaises(cohere.BadRequestError):
            self.clients()["v1"].rerank(model="m", query=QUERY, documents=DOCUMENTS, max_chunks_per_doc=3)


if __name__ == "__main__":
    unittest.main()
