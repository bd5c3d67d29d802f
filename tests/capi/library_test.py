#!/usr/bin/env python3
"""The shared library from outside: what it exports and needs, and that a program in C gets the text of `reprise generate`.

    library_test.py --library FILE --header FILE --say FILE --reprise FILE --model FOLDER --encoders FOLDER
"""
import argparse
import json
import re
import struct
import subprocess
import sys
import unittest

SYSTEM = re.compile(r"lib(c|m|dl|pthread|stdc\+\+|gcc_s|pcre2-8|utf8proc|xxhash|re2|fmt)\.so\.\d+|ld-linux[\w.-]*\.so\.\d")
options = None


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def float_bits(text):
    """The bits of the float32 that is nearest to a decimal."""
    return struct.pack("<f", float(text))


class Library(unittest.TestCase):
    def test_exports_its_functions_alone(self):
        declared = set(re.findall(r"^REPRISE_API [^;]*?\b(reprise_\w+)\(", open(options.header).read(), re.M))
        exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", options.library).splitlines()}
        self.assertGreater(len(declared), 25)
        self.assertEqual(exported, {f"{name}@@REPRISE_1" for name in declared} | {"REPRISE_1"})

    def test_needs_only_what_debian_has(self):
        dynamic = output("readelf", "-d", options.library)
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            self.assertRegex(name, SYSTEM)
        self.assertEqual(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libreprise.so.0"])
        self.assertNotIn("TEXTREL", dynamic)

    def answers_are_equal(self, prompt, more=(), settings=()):
        model = [f"model-path={options.model}", "load-format=dummy", "device=cpu", "plan-cache=off", "threads=2",
                 *settings]
        flags = [f"--{s.split('=')[0]}={s.split('=')[1]}" for s in model]
        ours = output(options.say, *model, "--", *more, prompt)
        theirs = output(options.reprise, "generate", *flags, "--prompt", "hi" if more else prompt, "--temperature", "0.8",
                        "--seed", "3", "--max-new-tokens", "24", *(["--apply-chat-template"] if more else []))
        self.assertEqual(ours + "\n", theirs)
        self.assertGreater(len(ours), 4)

    def test_text_is_that_of_generate(self):
        self.answers_are_equal("Once upon a time")
        self.answers_are_equal("Once upon a time", settings=["graph=off", "passes=none"])

    def test_a_chat_is_that_of_generate(self):
        self.answers_are_equal('[{"role": "user", "content": "hi"}]', more=["chat"])

    def pooled(self, folder, words, *flags):
        model = [f"model-path={options.encoders}/{folder}", "device=cpu", "plan-cache=off", "threads=1"]
        ours = output(options.say, *model, "--", *words)
        said = output(options.reprise, "embed", "--json", *(f"--{s}" for s in model), *flags)
        rows = [[float_bits(x) for x in line.split()] for line in ours.splitlines()]
        return rows, json.loads(said)

    def test_vectors_are_those_of_embed(self):
        texts = ["A graph is captured once.", "The sea is blue."]
        flags = [word for text in texts for word in ("--text", text)]
        for folder in ("bert_mean", "qwen3_last"):
            ours, said = self.pooled(folder, ["embed", *texts], *flags)
            self.assertEqual(ours, [[float_bits(x) for x in row] for row in said["embeddings"]])
            self.assertGreater(len(ours[0]), 1)
        ours, said = self.pooled("bert_scores", ["score", "what is captured?", *texts], "--query", "what is captured?",
                                 *flags)
        self.assertEqual([x for row in ours for x in row], [float_bits(x) for x in said["scores"]])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("library", "header", "say", "reprise", "model", "encoders"):
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
