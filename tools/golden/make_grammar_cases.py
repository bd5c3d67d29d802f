"""Writes tests/data/grammar/regex.json: patterns, and which texts Python's re says they match whole.

Hand-made patterns and random ones; of each, texts made from the pattern itself, damaged ones and random ones. Classes
are ASCII (re.ASCII), as in src/text/grammar/regex.h. Needs nothing but Python; the files were made with 3.11.

  python tools/golden/make_grammar_cases.py
"""

import json
import random
import re
import sys

from common import DATA

ALPHABET = 'aabbc01_ -.\n\t"\\{}[]()éß漢😀Z'
HAND = [
    "", "a", "abc", "a*", "a+b?", "(ab|cd)*e", "[a-c]+", "[^a-c]", "[^\\n]", ".", ".*", "a.c", "\\d{3}-\\d{4}", "\\w+", "\\W",
    "\\s*a\\S", "\\D?", "a{2}", "a{2,}", "a{,2}", "a{1,3}b", "a{0}", "(a|b){2,3}", "((a|b)c?){2}", "(?:ab)+", "(?P<n>a)b", "^a$",
    "^a|b$", "^(a|b)$", "a||b", "(|a)b", "()", "(a*)*", "(a*)+b", "(a|a)*", "[]a]", "[^]a]", "[a-]", "[-a]", "[\\d_]+",
    "[\\s\\S]*", "[^\\d]", "\\.", "\\{\\}", "{", "a{", "{}", "a{b}", "a{,}", "\\x61\\u00e9", "\\U0001F600+", "[é-漢]", "[\\x00-\\x7f]*",
    "[^\\x00-\\x7f]+", "é{2}", "😀|漢+", "(\\+|-)?(0|[1-9]\\d*)(\\.\\d+)?", "\\(\\)\\[\\]\\\\\\|\\^\\$", "a*?b", "a+?", "a??", "a{1,2}?", "(a?){4}",
    "[+*?.]", "\\-", "\\/", "\\\"", "\\t\\n", "[\\b]", "[\\]]", "[a\\-c]", "(a(b(c)?)?)?", "a|ab|abc", "(a|ab)(c|bcd)", "\\$5", "[$^]",
    "[ -~]*", "[\\u0080-\\U0010ffff]", ".{3}", "(.\\n)*", "yes|no|maybe", "[A-Z][a-z]*( [A-Z][a-z]*){0,2}",
]


def random_class(rng):
    if rng.random() < 0.4:
        return rng.choice(["\\d", "\\w", "\\s", "\\D", "\\W", "\\S", "."])
    members = "".join(
        rng.choice(["a-b", "0-9", "é-漢", "\\d", "\\s", "_", "\\-", "\\]", "😀", "b", "\\W", "\\x20-\\x2f"]) for _ in range(rng.randint(1, 3))
    )
    return "[" + rng.choice(["", "", "^"]) + members + "]"


def random_pattern(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        return rng.choice(["a", "b", "c", "0", "é", "😀", "\\.", " ", "ab", "漢"])
    if kind < 0.5:
        return random_class(rng)
    if kind < 0.7:
        return "".join(random_pattern(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if kind < 0.82:
        return "(" + "|".join(random_pattern(rng, depth - 1) for _ in range(rng.randint(1, 3))) + ")"
    inner = "(?:" + random_pattern(rng, depth - 1) + ")"
    return inner + rng.choice(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{1,3}", "*?"])


def sample(rng, parsed):
    """A text that the pattern (as re's own parser reads it) most likely matches."""
    out = ""
    for op, argument in parsed:
        name = str(op)
        if name == "LITERAL":
            out += chr(argument)
        elif name == "SUBPATTERN":
            out += sample(rng, argument[3])
        elif name == "BRANCH":
            out += sample(rng, rng.choice(argument[1]))
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = argument
            for _ in range(rng.randint(low, min(int(high), low + 3))):
                out += sample(rng, inner)
        else:
            out += rng.choice(ALPHABET)
    return out


def damaged(rng, text):
    at = rng.randint(0, len(text))
    return rng.choice([text[:at] + rng.choice(ALPHABET) + text[at:], text[:at] + text[at + 1 :], text[:at], text + text[at:]])


def cases():
    rng = random.Random(5)
    patterns = HAND + [random_pattern(rng, 4) for _ in range(250)]
    for pattern in dict.fromkeys(p for p in patterns if len(p) < 150):
        compiled = re.compile(pattern, re.ASCII)
        parsed = re._parser.parse(pattern, re.ASCII)
        texts = ["", "a"]
        for _ in range(12):
            text = sample(rng, parsed)[:40]
            texts += [text, damaged(rng, text), damaged(rng, damaged(rng, text))]
        texts += ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 4))) for _ in range(10)]
        case = {"pattern": pattern, "yes": [], "no": []}
        for text in dict.fromkeys(texts):
            case["yes" if compiled.fullmatch(text) else "no"].append(text)
        yield case


def main():
    folder = DATA / "grammar"
    folder.mkdir(exist_ok=True)
    all_cases = list(cases())
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in all_cases)
    (folder / "regex.json").write_text("[\n" + lines + "\n]\n", encoding="utf-8")
    yes, no = (sum(len(case[k]) for case in all_cases) for k in ("yes", "no"))
    print(f"{len(all_cases)} patterns, {yes} texts match, {no} do not; Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
