#!/usr/bin/env python3
"""Writes docs/model-coverage.md: which test proves each family in each dtype, quantisation, device and graph mode, and with
each feature; and the same facts for `reprise models --families`.

Families come of src/models/list.h and the files there, tests of the lists that the tests themselves are made from. A
cell names tests by the keys at the end of the page, or gives the number of a reason why there is none.

    tools/models_page.py          print the page
    tools/models_page.py --write  write both
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = "docs/model-coverage.md"
FACTS = "src/verification/model_tests.json"  # for the binary

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
    "Y": "models/vision_test QuantisedVision.TextIsInInt8AndTheTowerInFloats",
    "Z": "models/vision_test QuantisedVision.AllModesGiveTheSameBits",
    "VB": "models/vision_test VisionTest.LogitsInBfloat16AreNearThoseOfTransformers",
    "VF": "models/vision_test VisionTest.LogitsInFloat16AreNearThoseOfTransformers",
    "XM": "models/gpt_oss_test GptOssMxfp4.AGgufFileGivesTheBitsOfTheFolder",
    "X": "models/gguf_experts_test GgufExperts.LogitsAreThoseOfTheReferenceAndBitsThoseOfTheCheckpoint",
    "K": "models/ascend_coverage_test AscendCoverage.EveryModeOnEveryGenerationGivesTheSameBits",
    "N": "simt/models_test CudaModes.GiveTheSameBits",
    "PH": "sched/prefix_hit_test PrefixHit.GivesWhatThePromptAloneGives",
    "KS": "sched/kept_states_test KeptStates.APromptGoesOnFromTheLastBorderOfAnEqualOne",
    "IP": "sched/image_prefix_test ImagePrefix.IsSharedByImagesAndNotByTheirPlaceholders",
    "RS": "sched/random_schedules_test RandomSchedulesOfModels.AnswerAsEachRequestAlone",
    "VS": "models/verify_steps_test VerifySteps.RowsHaveTheBitsOfPlainSteps",
    "SB": "sched/speculation_bits_test SpeculationBits.AnswersAreThoseWithoutDrafts",
    "HD": "sched/head_drafter_test HeadDrafter.AnswersAreThoseWithoutAHead",
    "LG": "lora/models_test LoraGoldenTest.LogitsAreThoseOfPeft",
    "LB": "lora/models_test LoraBitsTest.EveryModePassAndNumberOfThreads",
    "JS": "clients/openai_test StructuredOutput.test_json_schema",
    "HT": "clients/openai_families_test Harmony.test_answers_are_what_openai_harmony_reads_whole_and_streamed",
    "RK": "models/ranks_test RanksTest.AnyNumberOfRanksGivesTheSameBits",
    "KR": "sched/kept_states_test KeptStates.OverRanksStatesAreGoneOnFromAsOnOne",
    "VR": "models/vision_test VisionTest.SeveralRanksGiveTheBitsOfOne",
    "AR": "models/ascend_ranks_test AscendRanks.GiveTheBitsOfOneCard",
    "CR": "simt/ranks_test CudaRanks.GiveTheBitsOfOne",
    "I8": "models/int8_cache_test Int8Cache.LogitsAreNearThoseOfAFloatCache",
    "IM": "models/int8_cache_test Int8Cache.ModesPassesAndCheckedReplaysGiveTheSameBits",
    "QG": "models/quantised_test QuantisedGolden.LogitsAreThoseOfTheFormulas",
    "QF": "quantiser/quantise_checkpoint_test QuantiseCheckpoint.LoadsAndIsNearTheFloatModel",
    "MX": "models/gpt_oss_test GptOssMxfp4.LogitsAreThoseOfTheReference",
    "PB": "models/packed_gguf_test PackedGguf.Fp32HasTheBitsOfTheUnpackedFile",
    "PE": "models/packed_gguf_test PackedGguf.ExpertsStay",
}
# Tests that run their models eagerly, in pieces and in whole graphs, and compare the bits; by device.
MODES = {"CPU": ["M", "S", "P", "U", "Z"], "Ascend": ["M", "K"], "CUDA": ["N"]}
# By feature: a word for it, its tests, and the reason where a family has none of them.
FEATURES = {
    "prompts in parts": ("parts", ["B", "S", "V"], 10),
    "prefix cache": ("prefix", ["PH", "KS", "IP", "RS"], 10),
    "speculation": ("drafts", ["VS", "SB", "HD", "RS"], 10),
    "LoRA": ("lora", ["LG", "LB"], 10),
    "grammar, tools": ("grammar", ["JS", "HT"], 10),
    "images": ("images", ["V", "Y"], 11),
    "several ranks": ("ranks", ["RK", "KR", "VR", "AR", "CR"], 10),
    "int8 KV cache": ("int8-kv", ["I8", "IM"], 10),
    "vectors": ("vectors", ["E"], 13),
}
# By what weights are stored in: its tests, and the reason where a family has none of them.
QUANTISATIONS = {"compressed-tensors": (["QG", "QF", "Y"], 23), "ModelSlim": (["QG", "QF"], 23), "MXFP4": (["MX", "XM"], 24), "GGUF": (["X", "XM", "V", "E", "PB", "PE"], 5)}
LINES_GOAL = 120  # of a family's file
# By architecture: kinds of tests/data/tokenizer that the published files have, and templates of tests/data/chat_templates.
TOKENIZERS = {
    "LlamaForCausalLM": ("spm_llama llama3 smollm2", "llama2 llama3 llama3_1 llama3_2 smollm2 falcon3"),
    "LlamaBidirectionalModel": ("llama3", ""),
    "InternLM3ForCausalLM": ("ernie", "internlm3"),
    "Llama4ForCausalLM": ("o200k", "llama4"),
    "MistralForCausalLM": ("spm_llama spm_mistral tekken", "mistral_v01 mistral_v03 mistral_nemo mistral_small3_2"),
    "Ministral3ForCausalLM": ("tekken", "ministral3"),
    "Qwen2ForCausalLM": ("qwen3", "qwen2_5"),
    "Qwen3ForCausalLM": ("qwen3", "qwen3 qwen3_instruct_2507"),
    "MixtralForCausalLM": ("spm_llama", "mistral_v01"),
    "Qwen2MoeForCausalLM": ("qwen3", "chatml"),
    "Qwen3MoeForCausalLM": ("qwen3", "qwen3 qwen3_instruct_2507 qwen3_coder"),
    "DeepseekV2ForCausalLM": ("deepseek_v2", "deepseek_v2"),
    "DeepseekV3ForCausalLM": ("deepseek_v3 kimi", "deepseek_v3 deepseek_v3_1 kimi_k2"),
    "ArceeForCausalLM": ("llama3", ""),
    "GemmaForCausalLM": ("gemma", "gemma"),
    "Gemma2ForCausalLM": ("gemma", "gemma"),
    "Gemma3ForCausalLM": ("gemma", "gemma3"),
    "Phi3ForCausalLM": ("phi3 phi4 o200k", "phi3 phi3_5 phi4 phi4_mini"),
    "GlmForCausalLM": ("llama3", ""),
    "Glm4ForCausalLM": ("llama3", "glm4_0414"),
    "Glm4MoeForCausalLM": ("llama3", "glm4moe glm4_6 glm4_7"),
    "Olmo2ForCausalLM": ("cl100k", "olmo2"),
    "Olmo3ForCausalLM": ("cl100k", "olmo3"),
    "OlmoeForCausalLM": ("gpt2", ""),
    "GraniteForCausalLM": ("smollm2", "granite3"),
    "GraniteMoeForCausalLM": ("smollm2", "granite3"),
    "GraniteMoeHybridForCausalLM": ("cl100k", "granite4"),
    "SmolLM3ForCausalLM": ("llama3", "smollm3"),
    "CohereForCausalLM": ("cohere", "cohere"),
    "Cohere2ForCausalLM": ("cohere", "cohere2 command_r7b"),
    "Starcoder2ForCausalLM": ("smollm2", ""),
    "Exaone4ForCausalLM": ("gpt2", "exaone4"),
    "Ernie4_5ForCausalLM": ("ernie", "ernie4_5"),
    "Ernie4_5_MoeForCausalLM": ("ernie", "ernie4_5"),
    "SeedOssForCausalLM": ("seed_oss", "seed_oss"),
    "HunYuanDenseV1ForCausalLM": ("deepseek_v3", ""),
    "HunYuanMoEV1ForCausalLM": ("hunyuan_moe", "hunyuan_a13b"),
    "MiniMaxM2ForCausalLM": ("minimax_m2", "minimax_m2"),
    "GptOssForCausalLM": ("o200k", "gptoss"),
    "Qwen3NextForCausalLM": ("qwen3", "qwen3_instruct_2507"),
    "Qwen3_5ForCausalLM": ("qwen3_5", "qwen3_5"),
    "Qwen3_5MoeForCausalLM": ("qwen3_5", "qwen3_5"),
    "NemotronHForCausalLM": ("llama3", "nemotron_nano2 nemotron_3_nano"),
    "Qwen2_5_VLForConditionalGeneration": ("qwen3", "qwen2_5_vl"),
    "Qwen3VLForConditionalGeneration": ("qwen3", "qwen3_vl"),
    "Qwen3VLMoeForConditionalGeneration": ("qwen3", "qwen3_vl"),
    "BertModel": ("minilm", ""),
    "BertForSequenceClassification": ("minilm", ""),
    "RobertaModel": ("gpt2", ""),
    "RobertaForSequenceClassification": ("gpt2", ""),
    "XLMRobertaModel": ("unigram_words", ""),
    "XLMRobertaForSequenceClassification": ("unigram_words", ""),
}
REASONS = {
    1: "other checkpoints of the family are tested so; what is special here changes nothing in it",
    2: "the device has no kernel of an op that the family needs, and refuses it by the op's name (tested by G)",
    3: "refused at start with the vendor's reason (tested by G)",
    4: "GGUF files of the family are not read",
    5: "no test of its own: the names and metadata are those of a family that has one",
    6: "models that give vectors or scores are tested in floats alone",
    8: "no test of its own: the text model alone is quantised, as the checkpoints with Y and Z show",
    9: "graph modes of vision towers are compared on the CPU, and on other devices one is tested (by I and T)",
    10: "no test of its own: tests of other families show it",
    11: "the family reads no images",
    12: "the model gives vectors or scores, and generates nothing",
    13: "tokens are what the family is tested for; those that give vectors are Qwen2, Qwen3, Mistral and Gemma 3",
    15: "latents are not kept in int8, and the flag is refused by its name (tested by I8)",
    16: "of the graph modes the usual one alone is tested on the device (by G); other checkpoints have all three",
    17: "on the executor one model without states and one with them have all modes; on a GPU every decoder has (N)",
    18: "graph modes of models that give vectors or scores are tested on the CPU",
    19: "refused: a reranker that answers yes or no has rows of its head as a classifier there",
    20: "no checkpoint of the family is tested on the device; its ops are those of BERT and RoBERTa, which are",
    21: "no test of its own: the device runs its text model (G) and the towers of others (I)",
    22: "refused at start: the device attends to both sides without a window alone (backends/ascend_encoder_test)",
    23: "no test of its own: names tell which linears are int8, and what is read is that of a family with a test",
    24: "published folders in MXFP4 are those of gpt-oss alone",
    25: "weights of vectors and scores are read in floats, and in blocks of GGUF",
}


def text(root, name):
    return (root / name).read_text(encoding="utf-8")


def gguf_names(source, body):
    """What files of a family have as general.architecture, "" for none. A function of its file may make the GgufFamily."""
    made = re.search(r"\.gguf = (gguf_\w+)\(", body)
    if made:
        body = ".gguf = " + block(source, re.search(rf"GgufFamily {made[1]}\(.*?return ", source, re.S).end())
    names = re.search(r'\.gguf = \{\.name = "([^"]+)"(?:,\s*\.other_name = "([^"]+)")?', body)
    return "`, `".join(n for n in names.groups() if n) if names else ""


OTHER_NAMES = {}  # of an architecture, by the one that means the same


def families(root):
    """(architecture, model type, wrapper, GGUF names) in the order of list.h."""
    return [fields for fields, _ in families_by_file(root)]


def families_by_file(root):
    """Each family of families(), and its file."""
    found, others = {}, {}
    for path in sorted((root / "src/models").glob("*.cpp")):
        source = path.read_text(encoding="utf-8")
        for name, body in re.findall(r"^const ModelSpec (k\w+)\s*\{(.*?)^(?=const ModelSpec|\}  // namespace)", source, re.S | re.M):
            field = lambda key: (re.search(rf'\.{key} = "([^"]+)"', body) or [None, ""])[1]
            found[name] = ((field("architecture"), field("model_type"), field("wrapper"), gguf_names(source, body)), path)
            others[name] = field("other_architecture")
    order = re.findall(r"X\(\w+, (k\w+)\)", text(root, "src/models/list.h"))
    OTHER_NAMES.update({others[name]: found[name][0][0] for name in order if others[name]})
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
        "pooled_gguf": re.findall(r'"(\w+)\.gguf"', text(root, "tests/encoders/pooled_test.cpp")),
        "gguf": names_in(text(root, "tests/models/gguf_experts_test.cpp"), r"kModels\[\] = \{(.*?)\}"),
        "quantised": [n for what in ("checkpoints", "checkpoints_of_experts")
                      for n in names_in(text(root, "tests/models/quantised_test.cpp"), rf"& {what}\(\) \{{(.*?)return names")],
    }


def block(source, start):
    """The text from `start` to the end of the braces that open behind it."""
    depth, at = 0, source.index("{", start)
    while True:
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
        if depth == 0:
            return source[start:at]


def text_of_test(root, key):
    """Of a test: its body, what it is made with, its fixture, and the lists and setups that these name."""
    file, name = KEYS[key].split()
    suite, case = name.split(".")
    source = text(root, f"tests/{file}.cpp")
    body = re.search(rf"^TEST(?:_[PF])?\({suite}, {case}\)", source, re.M)
    if not body:
        sys.exit(f"models_page: tests/{file}.cpp has no {name}")
    found = block(source, body.start())
    for made in re.finditer(rf"^INSTANTIATE_TEST_SUITE_P\(\s*\w*, {suite},.*?\);\n\n", source, re.S | re.M):
        found += made[0]
    fixture = re.search(rf"^class {suite} ", source, re.M)
    found += block(source, fixture.start()) if fixture else ""
    for name in set(re.findall(r"\b([a-z_]+)\(\)", found)):
        list_of = re.search(rf"^\w[^\n;=]* {name}\(\) {{", source, re.M)
        found += block(source, list_of.start()) if list_of else ""
    for name in set(re.findall(r"\b([A-Z]\w+){", found)):
        setup = re.search(rf"^struct {name} {{", source, re.M)
        found += block(source, setup.start()) if setup else ""
    return found


def checkpoints_of_test(root, key, known):
    """The names of the checkpoints that a test runs on."""
    if key == "JS":  # the default model, a Llama
        return {"llama_gqa3_tied"} if 'MODEL = "smollm2"' in text(root, "tests/clients/support.py") else set()
    if key == "HT":
        return set(re.findall(r'folder_of\("(\w+)", ', text(root, "tests/clients/openai_families_test.py")))
    if key in "BMSAW":
        return set(known[{"B": "bits", "M": "modes"}.get(key, "small")])
    source = text_of_test(root, key)
    if key == "N":  # those that run without a GPU
        return set(re.findall(r'push_back\({"(\w+)", DType::\w+, false}\)', source))
    names = set(re.findall(r'"(?:models/)?([a-z0-9_]+)(?:[+@.]\w+)?"', source))
    for name, group in (("tiny_models", "tiny"), ("small_families", "small")):
        names |= set(known[group]) if re.search(rf"\b{name}\(\)", source) else set()
    if key == "I8":
        if 'starts_with("deepseek")' not in source:
            sys.exit("models_page: which models keep no int8 cache?")
        names = {n for n in names if not n.startswith("deepseek")}
    return names


def tests_by_mode(root, known):
    """By device and checkpoint: keys of tests in all three modes."""
    out = {}
    for device, keys in MODES.items():
        for key in keys:
            source = text(root, f"tests/{KEYS[key].split()[0]}.cpp")
            if not all(re.search(mode, source) for mode in ("GraphMode::Whole", "GraphMode::Piecewise", "Policy::Off|GraphMode::Eager")):
                sys.exit(f"models_page: {KEYS[key]} does not run in all modes")
            names = checkpoints_of_test(root, key, known)
            if (key, device) == ("M", "Ascend"):
                names = set(re.findall(r'"(\w+)@ascend"', source))
            for name in names:
                out.setdefault((device, name), []).append(key)
    return out


def mode_row(name, known, by_mode, kind):
    gone = known["ascend"] + list(known["lacking"])
    ascend = {"encoder": 18, "tower": 9}.get(kind, 3 if name in known["ascend"] else 2 if name in gone else 16)
    reasons = {"CPU": 1, "Ascend": ascend, "CUDA": 9 if kind == "tower" else 17}
    if kind == "encoder":
        reasons["CUDA"] = 18
    return [f"`{name}`"] + [", ".join(by_mode.get((device, name), [])) or f"no {reasons[device]}" for device in MODES]


def feature_cell(feature, names, kinds, tested, known):
    _, keys, reason = FEATURES[feature]
    has = [key for key in keys if names & tested[key]]
    if has:
        return ", ".join(has)
    if kinds == {"encoder"} and feature not in ("images", "vectors"):
        return "no 12"
    if feature == "int8 KV cache" and any(n.startswith("deepseek") for n in names):
        return "no 15"
    return f"no {reason}"


def row(name, gguf, known, of_family):
    def cell(keys, reason):
        return keys or f"no {reason}"

    small = name in known["small"]
    graph = "S, A" if small else ", ".join(k for k, group in (("B", "bits"), ("M", "modes")) if name in known[group])
    int8 = "W" if small else "Q" if name in known["int8"] else ""
    ascend = "" if name in known["lacking"] or name in known["ascend"] else "G"
    in_gguf = "X" if name in known["gguf"] else "XM" if name == "gpt_oss" else ""  # a file of the same family in MXFP4
    elsewhere = any(other in known["gguf"] for other in of_family)
    return [f"`{name}`", "G", cell(graph, 1), cell(int8, 1), "C",
            cell(ascend, 3 if name in known["ascend"] else 2), cell(in_gguf, 4 if not gguf else 1 if elsewhere else 5)]


WINDOWS_OF_BOTH_SIDES = ("gemma3_both_sides", "mistral_both_sides")


def encoder_row(name, gguf, known):
    elsewhere = "no 20" if name.startswith("xlm_roberta") else "no 1"
    return [f"`{name}`", "E", "P", "no 6", "D" if name in known["pooled_on_cuda"] else elsewhere,
            "H" if name in known["pooled_on_ascend"] else "no 22" if name in WINDOWS_OF_BOTH_SIDES else elsewhere, "E, P" if name in known["pooled_gguf"] else "no 19" if name.endswith("yes_no") else "no 5" if gguf else "no 4"]


def vision_row(name, known, tested):
    whole = name in tested["V"]
    int8 = "Y, Z" if name in checkpoints_of_test(ROOT, "Y", known) else "no 8"
    return [f"`{name}`", "V, VB, VF" if whole else "Y", "U" if whole else "Z", int8, "T" if name in known["vision_on_cuda"] else "no 1",
            "I" if name in known["vision_on_ascend"] else "no 21" if name.startswith("qwen3_5") else "no 1",
            "V" if f"{name}_gguf" in tested["V"] else "no 1"]


def tests_by_quantisation(root, known):
    """By what weights are stored in and by test: names of checkpoints, or of GGUF's architectures."""
    by_us = {"compressed-tensors": "CompressedTensors", "ModelSlim": "ModelSlim"}
    made = re.findall(r'Case\{"(\w+)", QuantFormat::(\w+)', text(root, "tests/quantiser/quantise_checkpoint_test.cpp"))
    both = set(names_in(text(root, "tests/quantiser/quantise_checkpoint_test.cpp"), r"kFamilies\[\] = \{(.*?)\}"))
    out = {(q, "QF"): both | {n for n, form in made if form == by_us[q]} for q in by_us}
    for q, begin in (("compressed-tensors", "compressed_"), ("ModelSlim", "modelslim_")):
        out[q, "QG"] = {n for n in known["quantised"] if n.startswith(begin)}
    out["compressed-tensors", "Y"] = {n for n in checkpoints_of_test(root, "Y", known) if n.endswith("_w8a8")}
    out["MXFP4", "MX"] = {"mxfp4"}
    out["MXFP4", "XM"] = out["GGUF", "XM"] = {"gpt_oss"}
    out["GGUF", "X"], out["GGUF", "E"] = set(known["gguf"]), set(known["pooled_gguf"])
    out["GGUF", "V"] = {n.removesuffix("_gguf") for n in checkpoints_of_test(root, "V", known) if n.endswith("_gguf")}
    packed = "tests/models/packed_gguf_test.cpp"
    out["GGUF", "PB"] = {"in:llama", *(f"in:{n}" for n in re.findall(r'architecture = "(\w+)", \.type = \w+\}', text(root, packed)))}
    out["GGUF", "PE"] = {f"in:{n}" for n in re.findall(r'architecture = "(\w+)"', text_of_test(root, "PE"))}
    return out


def quantised_cell(quantisation, names, gguf, kinds, tested):
    keys, reason = QUANTISATIONS[quantisation]
    names = names | {f"in:{n}" for n in gguf.split("`, `")}
    has = [key for key in keys if names & tested.get((quantisation, key), set())]
    if has:
        return ", ".join(has)
    if quantisation == "GGUF":
        return f"no {reason if gguf else 4}"
    return "no 25" if kinds == {"encoder"} else f"no {reason}"


def lines_of_families(root):
    """Rows: the file, the model types of its families, its lines."""
    by_file = {}
    for (_, model_type, *_), path in families_by_file(root):
        by_file.setdefault(path, {})[f"`{model_type}`"] = True
    count = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in by_file}
    return [[f"`{path.name}`", ", ".join(by_file[path]), str(count[path])] for path in sorted(by_file, key=lambda p: (-count[p], p.name))]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(r) + " |" for r in rows]


class Coverage:
    """What the page says, by checkpoint and family."""

    def __init__(self, root):
        self.root, self.known, self.families = root, lists(root), families(root)
        self.models, self.encoders, self.towers, self.heads = ({} for _ in range(4))
        for name in self.known["tiny"]:
            self.add(self.models, root / f"tests/data/models/{name}/config.json")
        for found, folder in ((self.encoders, "encoders"), (self.towers, "vision"), (self.heads, "heads")):
            for config in sorted((root / f"tests/data/{folder}").glob("*/config.json")):
                self.add(found, config)
        self.quantised = {}
        for config in [*sorted((root / "tests/data/models_quantised").glob("*/config.json")), root / "tests/data/mxfp4/config.json"]:
            self.add(self.quantised, config)
        self.by_mode = tests_by_mode(root, self.known)
        self.by_quantisation = tests_by_quantisation(root, self.known)
        self.tested = {key: checkpoints_of_test(root, key, self.known) for _, keys, _ in FEATURES.values() for key in keys}
        # A test without a model on the page would be a mistake of this script.
        every = {n for group in (self.models, self.encoders, self.towers, self.heads) for names in group.values() for n in names}
        for key, names in self.tested.items():
            if not names & every:
                sys.exit(f"models_page: {KEYS[key]} runs on no model that is known")

    @staticmethod
    def add(found, config):
        fields = json.loads(config.read_text(encoding="utf-8"))
        # Of several text models a wrapper around one names its type.
        architecture = OTHER_NAMES.get(fields["architectures"][0], fields["architectures"][0])
        for key in (architecture, (architecture, fields.get("text_config", {}).get("model_type"))):
            found.setdefault(key, []).append(config.parent.name)

    def checkpoints(self, architecture, model_type, wrapper):
        """(name, kind) of a family."""
        decoders = self.models.get((architecture, None), []) + self.models.get((wrapper, model_type), [])
        out = [(n, "decoder") for n in decoders] + [(n, "encoder") for n in self.encoders.get(architecture, [])]
        towers = self.towers.get(architecture, []) + (self.towers.get((wrapper, model_type), []) if wrapper != architecture else [])
        out += [(n, "tower") for n in towers]
        if not out:
            sys.exit(f"models_page: {architecture} has no checkpoint in tests/data")
        return out

    def features(self, architecture, model_type, wrapper):
        """Cells, in the order of FEATURES."""
        both = self.checkpoints(architecture, model_type, wrapper)
        names = {n for n, _ in both} | set(self.heads.get(architecture, []))
        return [feature_cell(f, names, {kind for _, kind in both}, self.tested, self.known) for f in FEATURES]


def quantised_rows(c):
    """Of each family."""
    out = []
    for architecture, model_type, wrapper, gguf in c.families:
        both = c.checkpoints(architecture, model_type, wrapper)
        names = {n for n, _ in both} | set(c.quantised.get(architecture, []))
        kinds = {kind for _, kind in both}
        out.append([f"`{architecture}`", *(quantised_cell(q, names, gguf, kinds, c.by_quantisation) for q in QUANTISATIONS)])
    return out


def facts(root):
    """For the binary: by family the devices whose graph modes are tested, and keys or the reason of each feature."""
    c = Coverage(root)
    out = []
    for architecture, model_type, wrapper, _ in c.families:
        modes = {d: sorted({k for n, _ in c.checkpoints(architecture, model_type, wrapper) for k in c.by_mode.get((d, n), [])}) for d in MODES}
        cells = dict(zip(FEATURES, c.features(architecture, model_type, wrapper)))
        out.append({"architecture": architecture, "graph_modes": {d.lower(): keys for d, keys in modes.items() if keys},
                    "features": {FEATURES[f][0]: cell.split(", ") for f, cell in cells.items() if not cell.startswith("no ")},
                    "untested": {FEATURES[f][0]: REASONS[int(cell[3:])] for f, cell in cells.items() if cell.startswith("no ")}})
    used = {k for row in out for keys in [*row["features"].values(), *row["graph_modes"].values()] for k in keys}
    return json.dumps({"tests": {k: t for k, t in KEYS.items() if k in used}, "families": out}, indent=1) + "\n"


def tokenizer_rows(root, listed):
    """Architecture, kinds of tokenizers and templates, each of which must be one that a test has."""
    made = json.loads(text(root, "tests/data/tokenizer/families/families.json"))["kinds"]
    golden = text(root, "tests/text/tokenizer_golden_test.cpp")
    kinds = {k["kind"] for k in made} | set(re.findall(r'std::pair\("\w+", "(\w+)"\)', golden))
    templates = {t["name"] for t in json.loads(text(root, "tests/data/chat_templates/templates.json"))}
    rows = []
    for architecture, *_ in listed:
        if architecture not in TOKENIZERS:
            sys.exit(f"models_page: {architecture} is not in TOKENIZERS")
        cells = [f"`{architecture}`"]
        for names, known in zip(TOKENIZERS[architecture], (kinds, templates)):
            wrong = set(names.split()) - known
            if wrong:
                sys.exit(f"models_page: no test has {wrong} of {architecture}")
            cells.append(f"`{names}`" if names else "none")
        rows.append(cells)
    return rows


def page(root):
    c = Coverage(root)
    known, listed = c.known, c.families
    lines = ["# Which model is tested how", "",
             "`tools/models_page.py --write` writes this page from the registry and the lists of the tests, and `./dev check docs`",
             "fails when it is not what the script writes. A cell names tests by the [keys](#tests) at the end of the page, or",
             "gives the number of a [reason](#reasons) why there is none. `reprise models --families` prints the same facts.", "",
             "Every family has small random checkpoints with the logits of Hugging Face transformers",
             "(`tests/data/models/README.md`), or with vectors and scores (`tests/data/encoders/README.md`), or with images (`tests/data/vision/README.md`, with bounds of their own in bf16 and fp16). Logits are compared in fp32, bf16 and fp16 on every instruction set. \"Same bits\" covers",
             "chunks of prompts, batches, threads, passes, and eager, piecewise and whole graphs on the CPU.", "",
             "## Families", ""]
    lines += table(["architecture", "`model_type`", "in GGUF as"],
                   [[f"`{a}`" + (f", `{w}`" if w and w != a else ""), f"`{t}`", f"`{g}`" if g else "not read"] for a, t, w, g in listed])
    rows, modes = [], []
    for architecture, model_type, wrapper, gguf in listed:
        both = c.checkpoints(architecture, model_type, wrapper)
        of_family = [n for n, kind in both if kind == "decoder"]
        for name, kind in both:
            rows.append(encoder_row(name, gguf, known) if kind == "encoder" else vision_row(name, known, c.tested) if kind == "tower" else row(name, gguf, known, of_family))
            modes.append(mode_row(name, known, c.by_mode, kind))
    lines += ["", "## Tests of each", ""] + table(["checkpoint", "fp32, bf16, fp16", "same bits", "W8A8 by the pass", "CUDA", "Ascend", "GGUF"], rows)
    lines += ["", "## Graph modes", "",
              "Each test here runs its checkpoint eagerly, in pieces and in whole graphs, and compares the bits; on Ascend's simulator and CUDA's executor where there is no device.", ""]
    lines += table(["eager, piecewise, whole", *MODES], modes)
    features = [[f"`{a}`", *c.features(a, t, w)] for a, t, w, _ in listed]
    lines += ["", "## Features", "", "Of a family, whichever of its checkpoints has the test: " + ", ".join(f if f == w else f"{f} ({w})" for f, (w, *_) in FEATURES.items()) + ".", ""]
    lines += table(["architecture", *(w for w, *_ in FEATURES.values())], features)
    quantised = quantised_rows(c)
    lines += ["", "## Quantised weights", "",
              "Of a family, whichever of its checkpoints has the test: weights in the form in which they are stored. [Tests of each](#tests-of-each) has W8A8 that the pass makes.", ""]
    lines += table(["architecture", *QUANTISATIONS], quantised)
    sizes = lines_of_families(root)
    lines += ["", "## Lines of each family", "",
              f"Lines of the file in `src/models` that declares families, comments and blank lines too. Goal: at most {LINES_GOAL}; {sum(int(r[-1]) <= LINES_GOAL for r in sizes)} of {len(sizes)} files meet it.", ""]
    lines += table(["file", "`model_type`", "lines"], sizes)
    lines += ["", "## Tokenizers and templates", "",
              "Which tokenizer the published files of a family have (`tests/data/tokenizer/README.md` says what each name stands for), tested on 21,000 strings against Hugging Face tokenizers, and which chat templates are tested on 200 conversations against Jinja2 (`tests/data/chat_templates/README.md`). Tests: `text/tokenizer_golden_test TokenizerGolden`, `text/tokenizer_families_test TokenizerFamilies`, `text/chat_template_test ChatTemplate.EqualsJinja2OnEveryConversation`.", ""]
    lines += table(["architecture", "tokenizer", "templates"], tokenizer_rows(root, listed))
    used = " ".join(cell for r in rows + modes + features + quantised for cell in r[1:])
    lines += ["", "## Reasons", ""] + [f"- **no {n}**: {why}" for n, why in REASONS.items() if re.search(rf"no {n}\b", used)]
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
        (ROOT / FACTS).write_text(facts(ROOT), encoding="utf-8")
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
