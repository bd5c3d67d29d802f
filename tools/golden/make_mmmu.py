#!/usr/bin/env python3
"""A tiny data set in the form of MMMU, and what SGLang's rules take out of many answers.

    make_mmmu.py SIMPLE_EVAL_MMMU_VLM.PY

The argument is sglang/test/simple_eval_mmmu_vlm.py of the wheel sglang 0.5.23 (pip download --no-deps), whose functions are
run, not copied. Writes tests/data/mmmu; see the README there. Needs pillow besides requirements.txt.
"""

import json
import sys
import types

from common import DATA

from PIL import Image, ImageDraw

OUT = DATA / "mmmu"


def sglang(path):
    """Its module, with nothing behind what it imports: the rules are plain Python."""
    for name in ("datasets", "sglang", "sglang.test", "sglang.test.simple_eval_common"):
        module = types.ModuleType(name)
        module.__getattr__ = lambda _: object
        sys.modules[name] = module
    sys.modules["sglang.test"].simple_eval_common = sys.modules["sglang.test.simple_eval_common"]
    module = types.ModuleType("mmmu")
    exec(compile(open(path, encoding="utf-8").read(), path, "exec"), module.__dict__)
    return module


def picture(name, draw):
    image = Image.new("RGB", (40, 32), "white")
    draw(ImageDraw.Draw(image))
    image.save(OUT / name)


QUESTIONS = [
    dict(id="validation_Art_2", subject="Art", question="<image 1> Which form is shown?", options="['a square', \"a circle\", 'none']", answer="B",
         image_1="circle.png"),
    dict(id="validation_Art_1", subject="Art", question="What colour has the form in <image 1>?", options=["red", "blue"], answer="A", image_1="square.png"),
    dict(id="validation_Math_1", subject="Math", question="How many bars are there? <image 1>", options="[]", answer="3", image_1="bars.png"),
    dict(id="validation_Math_2", subject="Math", question="If a < 5 and b > 3, which bar is a + b long?", options=["the first", "the second"], answer="B",
         image_1="bars.png"),
]
OPTIONS = ["a square", "$6.50", "Blue Whale", "none of these"]
CHOICES = [
    "Answer: B", "answer : (C)", "Answer: **D**", "Answer: A\nno, Answer: C", "Answer: Z", "Answer:", "(B)", "I take (B) or (C).", "B", "B.", "'C'", "it is B ",
    "maybe A or B here", "the animal that swims here is the blue whale", "blue whale", "", " ", "It costs $6.50 as far as I can see it", "E", "(E)", ":D:",
    "a square or a blue whale, but in the end none of these", "Bravo", "(A) is wrong; A is not it, but B is", "A (B)", "ANSWER: B", "Final answer: B)",
    "Answer: b", "Answer:\n\n* D", "\u201cB\u201d", "The answer: it is C. Answer: (A)", ",.!?;:'B':;?!.,", "A B C D", "d",
]
OPEN = [
    "3", "The answer is 3.", "x = 3.14159", "There are three bars", "so the result is 1,234.5 dollars", "1e3", "= 2.675", "It is -7", "a\nfinal answer 5 apples", "",
    ".", "is :", "nan", "inf is big", "1_000", "0x10", "50%", "5", "Thus 10,000 and therefore 12", "is 1.005", "The final value is 3.0\nThe sum is 4", "v1.2.3",
    "So, so it could be blue", "Y", "1,23", "12,345,678 people", "2e-3 is small", "-.5", "the answer is \u00c4pfel", "x=1\ny=2", "  =  ",
]
GOLDS = ["3", "3.14", "three", "1,234.5", "1000", "2.67", "-7", "5", "blue", "y", "12", ["4", "four"], "0.5", "\u00e4pfel", "B"]


def plain(value):
    return value if isinstance(value, str) or value == value and abs(value) != float("inf") else repr(value)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rules = sglang(sys.argv[1])
    picture("circle.png", lambda d: d.ellipse((10, 6, 30, 26), fill="blue"))
    picture("square.png", lambda d: d.rectangle((10, 6, 30, 26), fill="red"))
    picture("bars.png", lambda d: [d.rectangle((4 + 12 * i, 28 - 8 * (i + 1), 12 + 12 * i, 28), fill="black") for i in range(3)])
    (OUT / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    prompts = {}
    for q in QUESTIONS:
        options = q["options"] if isinstance(q["options"], list) else eval(q["options"])
        # As _prepare_mmmu_samples() writes it.
        text = q["question"] + "\n" + "".join(f"{chr(65 + i)}. {o}\n" for i, o in enumerate(options))
        text += ("\nAnswer the following multiple-choice question. The last line of your response should be of the following format: 'Answer: $LETTER' "
                 "(without quotes) where LETTER is one of the options. Think step by step before answering.") if options else "\nAnswer: "
        prompts[q["id"]] = rules.MMMUVLMEval._split_prompt_for_image(text)
    index, letters = rules.MMMUVLMEval._build_mc_mapping(OPTIONS)
    opened = []
    for text in OPEN:
        values = rules._parse_open_response(text)
        opened.append(dict(text=text, values=[plain(v) for v in values], right=[rules._eval_open(g, values) for g in GOLDS]))
    parsed = dict(prompts=prompts, options=OPTIONS, golds=GOLDS, open=opened,
                  choices=[dict(text=t, choice=rules._parse_multi_choice_response(t, letters, index)) for t in CHOICES])
    lines = ",\n".join(json.dumps(k) + ": " + ("[\n" + ",\n".join(map(json.dumps, v)) + "\n]" if isinstance(v, list) and isinstance(v[0], dict) else json.dumps(v))
                       for k, v in parsed.items())
    (OUT / "parsed.json").write_text("{\n" + lines + "\n}\n")
    print(len(CHOICES), len(OPEN), "answers")


main()
