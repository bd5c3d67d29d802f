#!/usr/bin/env python3
"""Writes docs/model-coverage.md: which test proves each family in each dtype, quantisation, device and graph mode.

Families come of src/models/list.h and the files there, tests of the lists that the tests themselves are made from. A
cell names tests by the keys at the end of the page, or gives the number of a reason why there is none.

    tools/models_page.py          print the page
    tools/models_page.py --write  write it
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = "docs/model-coverage.md"

KEYS = {
    "G": "models/golden_test GoldenTest.LogitsAreThoseOfTheReference",
    "S": "models/small_families_test SmallFamilies.GiveTheSameBitsInChunksThreadsModesAndPasses",
    "A": "models/small_families_test SmallFamilies.GiveASequenceInABatchTheBitsItHasAlone",
    "W": "models/small_families_test SmallFamilies.AreInt8ByThePassWithTheSameBitsEverywhere",
    "B": "models/same_bits_test SameBitsTest.ChunkedPrefillIsWholePrefill",
    "M": "models/graph_modes_test GraphModesTest.AllModesGiveTheSameBitsAtEveryBatch",
    "Q": "models/quantised_test QuantisedBits.AreTheSameInAllModesThreadsChunksAndPasses",
    "C": "simt/models_test CudaGolden.LogitsAreThoseOfTheReference",
    "E": "encoders/pooled_test Pooled.RowsAreThoseOfTheReference",
    "P": "encoders/pooled_test Pooled.BitsAreTheSameAloneInBatchesThreadsModesAndPasses",
    "D": "simt/encoder_test CudaSmall.EncodersGiveTheRowsOfTheReference",
    "V": "models/vision_test VisionTest.LogitsAreThoseOfTransformersHoweverThePromptIsCut",
    "U": "models/vision_test VisionTest.AllModesGiveTheSameBits",
    "H": "encoders/ascend_pooled_test AscendPooled.RowsAreThoseOfTheReference",
    "I": "models/ascend_vision_test AscendVision.LogitsAreThoseOfTransformersHoweverThePromptIsCut",
    "T": "simt/vision_test CudaVision.RowsAndLogitsAreThoseOfTransformers",
    "X": "models/gguf_experts_test GgufExperts.LogitsAreThoseOfTheReferenceAndBitsThoseOfTheCheckpoint",
}
REASONS = {
    1: "other checkpoints of the family are tested so; what is special here changes nothing in it",
    2: "the device has no kernel of an op that the family needs, and refuses it by the op's name (tested by G)",
    3: "refused at start with the vendor's reason (tested by G)",
    4: "GGUF files of the family are not read",
    5: "no test of its own: the names and metadata are those of a family that has one",
    6: "models that give vectors or scores are tested in floats alone",
    8: "quantised weights of models with a vision tower are refused",
}


def text(root, name):
    return (root / name).read_text(encoding="utf-8")


def families(root):
    """(architecture, model type, wrapper, GGUF name) in the order of list.h."""
    found = {}
    for path in sorted((root / "src/models").glob("*.cpp")):
        source = path.read_text(encoding="utf-8")
        for name, body in re.findall(r"^const ModelSpec (k\w+)\s*\{(.*?)^(?=const ModelSpec|\}  // namespace)", source, re.S | re.M):
            field = lambda key: (re.search(rf'\.{key} = "([^"]+)"', body) or [None, ""])[1]
            gguf = re.search(r'\.gguf = \{\.name = "([^"]+)"', body)
            found[name] = (field("architecture"), field("model_type"), field("wrapper"), gguf[1] if gguf else "")
    order = re.findall(r"X\(\w+, (k\w+)\)", text(root, "src/models/list.h"))
    return [found[name] for name in order]


def names_in(source, pattern):
    match = re.search(pattern, source, re.S)
    if not match:
        sys.exit(f"models_page: no {pattern}")
    return re.findall(r'"([a-z0-9_]+)', match[1])


def lists(root):
    support = text(root, "tests/support/tiny_models.h")
    small = names_in(support, r"small_families\(\) \{(.*?)return names")
    lacking = dict(re.findall(r'\{"(\w+)", "(\w+)"\}', re.search(r"lacking_on_ascend\(\) \{(.*?)return", support, re.S)[1]))
    return {
        "small": small,
        "tiny": names_in(support, r"tiny_models\(\) \{(.*?)return names") + small,
        "lacking": lacking,
        "ascend": names_in(text(root, "tests/models/golden_test.cpp"), r"refused_by_ascend\(\) \{(.*?)return"),
        "bits": names_in(text(root, "tests/models/same_bits_test.cpp"), r"params\(\) \{(.*?)return out"),
        "modes": names_in(text(root, "tests/models/graph_modes_test.cpp"), r"GraphModesTest,\s*testing::Values\((.*?)\)\);"),
        "int8": names_in(text(root, "tests/models/quantised_test.cpp"), r"Tiny, QuantisedBits,\s*testing::Values\((.*?)\)\);"),
        "pooled_on_cuda": names_in(text(root, "tests/simt/encoder_test.cpp"), r"kModels\[\] = \{(.*?)\}"),
        "pooled_on_ascend": names_in(text(root, "tests/encoders/ascend_pooled_test.cpp"), r"cases\(\) \{(.*?)return out"),
        "vision_on_ascend": names_in(text(root, "tests/models/ascend_vision_test.cpp"), r"AscendVision,\s*testing::Values\((.*?)\),"),
        "vision_on_cuda": names_in(text(root, "tests/simt/vision_test.cpp"), r"cuda_vision_params\(\) \{(.*?)return out"),
        "gguf": names_in(text(root, "tests/models/gguf_experts_test.cpp"), r"kModels\[\] = \{(.*?)\}"),
    }


def row(name, gguf, known, of_family):
    def cell(keys, reason):
        return keys or f"no {reason}"

    small = name in known["small"]
    graph = "S, A" if small else ", ".join(k for k, group in (("B", "bits"), ("M", "modes")) if name in known[group])
    int8 = "W" if small else "Q" if name in known["int8"] else ""
    ascend = "" if name in known["lacking"] or name in known["ascend"] else "G"
    in_gguf = "X" if name in known["gguf"] else ""
    elsewhere = any(other in known["gguf"] for other in of_family)
    return [f"`{name}`", "G", cell(graph, 1), cell(int8, 1), "C",
            cell(ascend, 3 if name in known["ascend"] else 2), cell(in_gguf, 4 if not gguf else 1 if elsewhere else 5)]


def encoder_row(name, known):
    return [f"`{name}`", "E", "P", "no 6", "D" if name in known["pooled_on_cuda"] else "no 1",
            "H" if name in known["pooled_on_ascend"] else "no 1", "no 4"]


def vision_row(name, known):
    return [f"`{name}`", "V", "U", "no 8", "T" if name in known["vision_on_cuda"] else "no 1",
            "I" if name in known["vision_on_ascend"] else "no 1", "no 4"]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(r) + " |" for r in rows]


def page(root):
    known = lists(root)
    models = {}
    for name in known["tiny"]:
        config = json.loads(text(root, f"tests/data/models/{name}/config.json"))
        text_type = config.get("text_config", {}).get("model_type")  # of several text models a larger one names its own
        models.setdefault((config["architectures"][0], text_type), []).append(name)
    encoders = {}  # and decoders whose rows are pooled
    for config in sorted((root / "tests/data/encoders").glob("*/config.json")):
        architecture = json.loads(config.read_text(encoding="utf-8"))["architectures"][0]
        encoders.setdefault(architecture, []).append(config.parent.name)
    towers = {}  # models that read images
    for config in sorted((root / "tests/data/vision").glob("*/config.json")):
        towers.setdefault(json.loads(config.read_text(encoding="utf-8"))["architectures"][0], []).append(config.parent.name)
    lines = ["# Which model is tested how", "",
             "`tools/models_page.py --write` writes this page from the registry and the lists of the tests, and `./dev check docs`",
             "fails when it is not what the script writes. A cell names tests by the [keys](#tests) at the end of the page, or",
             "gives the number of a [reason](#reasons) why there is none.", "",
             "Every family has small random checkpoints with the logits of Hugging Face transformers",
             "(`tests/data/models/README.md`), or with vectors and scores (`tests/data/encoders/README.md`), or with images (`tests/data/vision/README.md`, in fp32). Logits are compared in fp32, bf16 and fp16 on every instruction set. \"Same bits\" covers",
             "chunks of prompts, batches, threads, passes, and eager, piecewise and whole graphs on the CPU.", "",
             "## Families", ""]
    listed = families(root)
    lines += table(["architecture", "`model_type`", "in GGUF as"],
                   [[f"`{a}`" + (f", `{w}`" if w and w != a else ""), f"`{t}`", f"`{g}`" if g else "not read"] for a, t, w, g in listed])
    lines += ["", "## Tests of each", ""]
    rows = []
    for architecture, model_type, wrapper, gguf in listed:
        of_family = models.get((architecture, None), []) + models.get((wrapper, model_type), [])
        pooled = encoders.get(architecture, [])
        seeing = towers.get(architecture, [])
        if not of_family + pooled + seeing:
            sys.exit(f"models_page: {architecture} has no checkpoint in tests/data/models or tests/data/encoders")
        rows += [row(name, gguf, known, of_family) for name in of_family] + [encoder_row(name, known) for name in pooled] + [vision_row(name, known) for name in seeing]
    lines += table(["checkpoint", "fp32, bf16, fp16", "same bits", "W8A8 by the pass", "CUDA", "Ascend", "GGUF"], rows)
    used = " ".join(cell for r in rows for cell in r[1:])
    lines += ["", "## Reasons", ""] + [f"- **no {n}**: {why}" for n, why in REASONS.items() if f"no {n}" in used]
    if known["lacking"]:
        ops = {}
        for name, op in known["lacking"].items():
            ops.setdefault(op, []).append(f"`{name}`")
        lines += ["", "Ops without kernels on Ascend: " +
                  "; ".join(f"`{op}` ({', '.join(names)})" for op, names in ops.items()) + "."]
    lines += ["", "## Tests", ""] + [f"- **{key}**: `{test}`" for key, test in KEYS.items() if re.search(rf"\b{key}\b", used)]
    return "\n".join(wrap(lines)) + "\n"


def wrap(lines):
    """Prose within 120 columns; tables and lists of tests stay."""
    import textwrap
    out = []
    for line in lines:
        out += [line] if len(line) <= 120 or line.startswith("|") else textwrap.wrap(line, 118, break_on_hyphens=False)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    made = page(ROOT)
    if args.write:
        (ROOT / PAGE).write_text(made, encoding="utf-8")
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
