#!/usr/bin/env python3
"""The shared library from outside: what it exports and needs, and that a program in C gets the text of `reprise generate`.

    library_test.py --library FILE --header FILE --say FILE --reprise FILE --model FOLDER --encoders FOLDER
"""
import argparse
import ctypes
import json
import pathlib
import re
import struct
import subprocess
import sys
import unittest

SYSTEM = re.compile(r"lib(c|m|dl|pthread|stdc\+\+|gcc_s|pcre2-8|utf8proc|xxhash|re2|fmt|png16|jpeg|webp)\.so\.\d+"
                    r"|ld-linux[\w.-]*\.so\.\d")
options = None


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def float_bits(text):
    """The bits of the float32 that is nearest to a decimal."""
    return struct.pack("<f", float(text))


class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


def loaded():
    """The library in this process, with the types of the functions that are called here."""
    library = ctypes.CDLL(options.library)
    pointers = ("reprise_settings_new", "reprise_blob_data")
    texts = ("reprise_error_message", "reprise_error_place")
    for name in pointers:
        getattr(library, name).restype = ctypes.c_void_p
    for name in texts:
        getattr(library, name).restype = ctypes.c_char_p
    library.reprise_settings_table.restype = Text
    library.reprise_blob_size.restype = ctypes.c_size_t
    return library


class Settings:
    """Settings of the library, set by name."""

    def __init__(self, library):
        self.library, self.held = library, ctypes.c_void_p(library.reprise_settings_new())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.reprise_settings_free(self.held)

    def error(self, call, *arguments):
        """(place, message) of a call that fails; None where it does not."""
        why = ctypes.c_void_p()
        if call(self.held, *arguments, ctypes.byref(why)) == 0:
            return None
        out = self.library.reprise_error_place(why).decode(), self.library.reprise_error_message(why).decode()
        self.library.reprise_error_free(why)
        return out

    def set(self, name, value):
        return self.error(self.library.reprise_settings_set, name.encode(), value.encode())

    def set_json(self, values):
        text = json.dumps(values).encode()
        return self.error(self.library.reprise_settings_json, Text(text, len(text)))


def wrong_values(row):
    """Texts that are no value of a row of the table; none where any text is one."""
    if row["type"] == "integer":
        low, _, high = row["allowed"].partition(" to ")
        bounds = [str(int(low.removesuffix(" or more")) - 1)] + ([str(int(high) + 1)] if high else [])
        return ["many", "99999999999999999999", *bounds]
    return {"switch": ["maybe", "1"], "choice": ["no-such-word"], "real": ["warm", "nan"],
            "integers": ["1,x"]}.get(row["type"], [])


class Library(unittest.TestCase):
    def test_exports_its_functions_alone(self):
        declared = set(re.findall(r"^REPRISE_API [^;]*?\b(reprise_\w+)\(", pathlib.Path(options.header).read_text(), re.M))
        exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", options.library).splitlines()}
        self.assertGreater(len(declared), 25)
        self.assertEqual(exported, {f"{name}@@REPRISE_1" for name in declared} | {"REPRISE_1"})

    def test_needs_only_what_debian_has(self):
        dynamic = output("readelf", "-d", options.library)
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            self.assertRegex(name, SYSTEM)
        self.assertEqual(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libreprise.so.0"])
        self.assertNotIn("TEXTREL", dynamic)

    def test_wrong_values_name_the_row_and_what_is_allowed(self):
        library = loaded()
        table = library.reprise_settings_table()
        rows = json.loads(ctypes.string_at(table.data, table.size))
        seen = 0
        with Settings(library) as settings:
            for row in rows:
                name, key = row["name"], row["name"].replace("-", "_")
                allowed = "true, false" if row["type"] == "switch" else row["allowed"]
                for value in wrong_values(row):
                    for place, message in (settings.set(name, value), settings.set_json({name: value})):
                        self.assertEqual(place, key)
                        self.assertTrue(message.startswith(f"`{key}`: ") and value in message, message)
                        self.assertIn(f"allowed: {allowed}", message)
                    seen += 1
            self.assertGreater(seen, 60)
            # A name that is near, and a setting of `serve`.
            self.assertIn("close names: max_running_requests", settings.set("max-running-request", "1")[1])
            self.assertEqual(settings.set("port", "1")[0], "port")

    def test_settings_are_described_with_their_origin(self):
        library, engine, blob = loaded(), ctypes.c_void_p(), ctypes.c_void_p()
        with Settings(library) as settings:
            given = {"model-path": options.model, "load-format": "dummy", "device": "cpu", "plan-cache": "off",
                     "threads": 1, "context-length": 64, "override": ["rope_theta=5000"], "graph": "off"}
            self.assertIsNone(settings.set_json(given))
            self.assertIsNone(settings.set("max-running-requests", "9"))
            self.assertIsNone(settings.set("max-running-requests", "3"))
            why = settings.error(lambda s, error: library.reprise_open(s, None, ctypes.byref(engine), error))
            self.assertIsNone(why)
        self.assertEqual(library.reprise_describe(engine, b"settings", ctypes.byref(blob), None), 0)
        told = json.loads(ctypes.string_at(library.reprise_blob_data(blob), library.reprise_blob_size(blob)))
        library.reprise_blob_free(blob)
        library.reprise_close(engine)
        self.assertEqual(told["max-running-requests"],
                         {"value": "3", "origin": "api", "outranked": [{"value": None, "origin": "device"}]})
        self.assertEqual(told["context-length"]["value"], "64")
        self.assertEqual(told["override"]["value"], ["rope_theta=5000"])
        self.assertEqual(told["page-size"], {"value": "128", "origin": "default"})
        # What nobody said, the model and the device have decided.
        self.assertEqual((told["dtype"]["value"], told["dtype"]["origin"]), ("float32", "model"))
        self.assertEqual(told["dtype"]["outranked"], [{"value": "auto", "origin": "default"}])
        tokens = told["max-total-tokens"]
        self.assertEqual(tokens["origin"], "device")
        self.assertEqual(int(tokens["value"]) % 128, 0)
        self.assertGreater(int(tokens["value"]), 0)

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
