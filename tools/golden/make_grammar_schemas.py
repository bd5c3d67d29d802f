"""Writes tests/data/grammar/schemas.json: JSON schemas, with texts that must be allowed and texts that must not.

What is valid says the package jsonschema (draft 2020-12, with its format checker and rfc3339-validator; requirements.txt
has the versions). "yes" has instances made from the schema, in the order of its properties; "no" has damaged ones that
are invalid, or no JSON. Also checks the random walks of tests/data/grammar/walks.json, which
tests/text/grammar_schema_test.cpp writes (REPRISE_GRAMMAR_WALKS=FILE), against their schemas.

  python tools/golden/make_grammar_schemas.py               schemas.json
  python tools/golden/make_grammar_schemas.py walks.json    checks the walks
  python tools/golden/make_grammar_schemas.py --random SEED
                                                            400 random schemas, to be walked as well (the data's README)
"""

import json
import random
import re
import sys

import jsonschema

from common import DATA

STR, INT, NUM, NULL, BOOL = ({"type": t} for t in ("string", "integer", "number", "null", "boolean"))


def obj(required=None, more=None, **properties):
    out = {"type": "object", "properties": properties}
    out["required"] = list(properties) if required is None else required
    if more is not None:
        out["additionalProperties"] = more
    return out


# A schema, instances that must be allowed, instances (or texts) that may be damaged into others.
SCHEMAS = [
    (STR, ["", "a", "é漢😀", "a\"b\\c\n\t\u0001/", "\u2028"]),
    (INT, [0, 1, -1, 1234567890123]),
    (NUM, [0, -1.5, 1e30, 2.5e-7, 100]),
    (BOOL, [True, False]),
    (NULL, [None]),
    ({"type": ["string", "null"]}, ["a", None]),
    ({"type": "object"}, [{}, {"a": 1, "b": {"c": [1, 2.5, "x", None, True, {}]}}]),
    ({"type": "array"}, [[], [1, "a", [], {}]]),
    (True, [1, "a", None, [], {}]),
    ({}, [1, "a", None, [[]], {"a": {}}]),
    (obj(name=STR, age=INT), [{"name": "Ann", "age": 5}]),
    (obj(["a"], a=INT, b=INT, c=INT), [{"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}]),
    (obj([], a=INT, b=INT), [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}]),
    (obj(["b"], False, a=INT, b=INT, c=INT), [{"b": 1}, {"a": 1, "b": 2}, {"b": 1, "c": 2}]),
    (obj(["a"], True, a=INT, ab=STR), [{"a": 1}, {"a": 1, "ab": "x"}, {"a": 1, "abc": []}, {"a": 1, "b": 1, "": 2}, {"a": 2, "é": 1}]),
    (obj([], INT, **{"é": STR, "a\"b": STR, "\n": STR}), [{}, {"é": "1"}, {"é": "", "x": 1}, {"a\"b": "", "\\": 1, "a": 2}, {"è": 3}]),
    ({"type": "object", "additionalProperties": {"type": "array", "items": INT}}, [{}, {"a": [], "b": [1]}]),
    ({"type": "object", "required": ["x"], "additionalProperties": BOOL}, [{"x": True}, {"x": False, "y": True}]),
    ({"type": "array", "items": INT}, [[], [1], [1, 2, 3]]),
    ({"type": "array", "items": STR, "minItems": 1, "maxItems": 3}, [["a"], ["a", "b"], ["a", "b", "c"]]),
    ({"type": "array", "items": INT, "minItems": 2}, [[1, 2], [1, 2, 3, 4]]),
    ({"type": "array", "maxItems": 0}, [[]]),
    ({"type": "array", "prefixItems": [INT, STR], "items": False, "minItems": 2}, [[1, "a"]]),
    ({"type": "array", "prefixItems": [INT, STR], "items": BOOL}, [[], [1], [1, "a"], [1, "a", True, False]]),
    ({"enum": ["red", "green", "greenish", 5, 2.5, None, True, ["a", 1], {"k": "v"}]}, ["red", "greenish", 5, 2.5, None, True, ["a", 1], {"k": "v"}]),
    ({"type": "string", "enum": ["a", "b", 3]}, ["a", "b"]),
    ({"const": {"a": [1]}}, [{"a": [1]}]),
    ({"anyOf": [INT, {"type": "string", "maxLength": 2}, NULL]}, [1, "ab", "", None]),
    ({"oneOf": [obj(kind={"const": "a"}, x=INT), obj(kind={"const": "b"}, y=STR)]}, [{"kind": "a", "x": 1}, {"kind": "b", "y": ""}]),
    ({"type": "string", "minLength": 2, "maxLength": 4}, ["ab", "abcd", "é😀\n"]),
    ({"type": "string", "minLength": 3}, ["abc", "abcdefgh"]),
    ({"type": "string", "pattern": "^[a-z]{2,3}$"}, ["ab", "abc"]),
    ({"type": "string", "pattern": "[a-z][^5]"}, ["a1", "5xa1yy", "\na1\"\\"]),
    ({"type": "string", "pattern": "^[a-m]|[n-z]$"}, ["a", "a1", "x", "1x"]),
    ({"type": "string", "pattern": "^[\\s\"\\\\é]+$"}, ["\n\t \"", "\\é"]),
    ({"type": "string", "format": "date"}, ["2024-01-31", "1999-02-28", "2024-11-30"]),
    ({"type": "string", "format": "date-time"}, ["2024-01-31T23:59:59Z", "2024-01-31T00:00:00.25+01:00"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"]),
    ({"type": "string", "format": "ipv4"}, ["127.0.0.1", "255.249.199.9"]),
    ({"type": "string", "format": "email"}, ["a.b@example.org"]),
    ({"type": "integer", "minimum": 0}, [0, 1, 10, 999999999999]),
    ({"type": "integer", "minimum": 17, "maximum": 1234}, [17, 18, 99, 100, 999, 1000, 1199, 1234]),
    ({"type": "integer", "minimum": -120, "maximum": 35}, [-120, -119, -99, -1, 0, 9, 35]),
    ({"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": -1}, [-4, -3, -2]),
    ({"type": "integer", "maximum": -10}, [-10, -11, -100, -99999]),
    ({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 2.5}, [1, 2]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.0, 1.0, 0.123]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, [0.001, 1, 9.999, 5.5]),
    ({"type": "number", "minimum": -2, "maximum": -1}, [-2, -1, -1.5, -1.0]),
    ({"type": "number", "minimum": -1, "exclusiveMaximum": 1}, [-1, -0.5, 0, 0.5]),
    ({"type": "number", "exclusiveMinimum": 12}, [12.5, 13, 120.25, 100]),
    ({"$ref": "#/$defs/node", "$defs": {"node": obj(["v"], v=INT, next={"anyOf": [{"$ref": "#/$defs/node"}, NULL]})}},
     [{"v": 1}, {"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": {"v": 3}}}]),
    (obj([], False, name=STR, children={"type": "array", "items": {"$ref": "#"}}), [{}, {"name": "a", "children": [{}, {"name": "b"}]}]),
    ({"allOf": [obj(a=INT), obj(["b"], b=STR)]}, [{"a": 1, "b": "x"}]),
    ({"allOf": [{"$ref": "#/definitions/base"}], "properties": {"b": STR}, "definitions": {"base": obj(["a"], a=INT)}}, [{"a": 1}, {"b": "", "a": 1}]),
    ({"type": "object", "properties": {"a": INT, "b": INT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1}, {"b": 1}, {"a": 1, "b": 2}]),
    ({"allOf": [obj(["a"], False, a={"type": "number"}), {"properties": {"a": {"minimum": 3, "type": "integer"}}}]}, [{"a": 3}]),
    ({"type": "array", "prefixItems": [INT], "items": STR, "anyOf": [{"items": {"type": ["integer", "string"], "minLength": 1}}, {"maxItems": 1}]},
     [[], [1], [1, "a", "b"]]),
    ({"allOf": [{"prefixItems": [INT]}, {"prefixItems": [{"minimum": 3}, STR], "items": BOOL}], "type": "array"}, [[], [3], [4, "a", True]]),
    (obj(n={"$ref": "#/$defs/a~1b%25"}, **{"m": {"title": "notes", "description": "d", "default": 3, "examples": [1], **INT}}) | {"$defs": {"a/b%": BOOL}},
     [{"n": True, "m": 1}]),
]


def dump(value, spaced=False):
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": ") if spaced else (",", ":"))


def damaged(rng, text):
    at = rng.randint(0, len(text))
    other = rng.choice(list('"{}[],:0129-.eE\\u nt') + ["null", "true", "\n", "\t", "é", '"a":1', ',"zz":0', "-0", "00", "\\ud800", "\\x"])
    return rng.choice([text[:at] + other + text[at:], text[:at] + text[at + 1 :], text[:at] + other + text[at + 1 :], text[:at]])


def refuse(token):
    raise ValueError(token)


def is_valid(validator, text):
    try:
        value = json.loads(text, parse_constant=refuse)
        text.encode("utf-8")
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # no lone surrogates
    except ValueError:
        return False
    return validator.is_valid(value)


def validator_of(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def cases():
    rng = random.Random(11)
    for schema, instances in SCHEMAS:
        validator = validator_of(schema)
        yes, no = [], []
        for instance in instances:
            assert validator.is_valid(instance), (schema, instance)
            yes.append(dump(instance))
        if not re.search("pattern|format|enum|const|additional", dump(schema)):
            yes += [json.dumps(i, separators=(",", ":")) for i in instances]  # \u escapes, with surrogate pairs
        if not re.search("enum|const", dump(schema)):
            yes += [json.dumps(i, ensure_ascii=False, indent=2) for i in instances]
            yes += [dump(i, True) for i in instances]
        for text in list(yes):
            for _ in range(40):
                other = damaged(rng, text)
                if rng.random() < 0.3:
                    other = damaged(rng, other)
                if not is_valid(validator, other):
                    no.append(other)
        yield {"schema": schema, "yes": list(dict.fromkeys(yes)), "no": list(dict.fromkeys(no))[:60]}


def random_leaf(rng):
    def bounded(out, *bounds):
        for names, a, b in bounds:
            if rng.random() < 0.6:
                out[rng.choice(names)] = rng.randint(a, b)
        return out

    low, high = ["minimum", "exclusiveMinimum"], ["maximum", "exclusiveMaximum"]
    return rng.choice(
        [
            lambda: bounded({"type": "integer"}, (low, -300, 100), (high, 90, 2000)),
            lambda: bounded({"type": "number"}, (low, -30, 10), (high, -5, 20)),
            lambda: bounded({"type": "string"}, (["minLength"], 0, 3), (["maxLength"], 2, 6)),
            lambda: {"type": "string", "pattern": rng.choice(["^a*b?$", "[0-9]", "^[a-m]|[!-z]$", "^[^a]{2,4}$", "^[-+ ]\\s?$"])},
            lambda: {"enum": rng.sample([1, "a", "ab", None, True, [1, 2], {"a": 2}, "é", -0.5], 3)},
            lambda: {"const": rng.choice([1, "x", {"k": [None]}])},
            lambda: {"type": rng.sample(["string", "integer", "null", "boolean", "array", "object", "number"], 2)},
            lambda: True,
            lambda: {"type": rng.choice(["boolean", "null"])},
        ]
    )()


def random_schema(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return random_leaf(rng)
    inner = lambda: random_schema(rng, depth - 1)
    if kind < 0.5:
        names = rng.sample(["a", "b", "ab", "abc", "é", 'c"', "n\n", ""], rng.randint(0, 4))
        more = {"additionalProperties": rng.choice([True, False, random_leaf(rng)])} if rng.random() < 0.5 else {}
        required = [n for n in names if rng.random() < 0.4] + ["zz"] * (rng.random() < 0.1)
        return {"type": "object", "properties": {n: inner() for n in names}, "required": required, **more}
    if kind < 0.67:
        parts = {
            "items": inner(),
            "prefixItems": [inner() for _ in range(rng.randint(1, 3))],
            "minItems": rng.randint(0, 3),
            "maxItems": rng.randint(2, 4),
        }
        return {"type": "array", **{k: v for k, v in parts.items() if rng.random() < 0.5}}
    if kind < 0.9:
        return {rng.choice(["anyOf", "allOf"]): [inner() for _ in range(rng.randint(1, 3))]}
    if kind < 0.95:
        return {"$ref": "#/$defs/" + rng.choice("xy")}
    out = inner()
    return {**out, "anyOf": [inner(), inner()]} if isinstance(out, dict) else out


def random_schemas(seed):
    rng = random.Random(seed)
    for _ in range(400):
        rest = {"anyOf": [{"$ref": "#/$defs/y"}, {"type": "null"}]}
        schema = random_schema(rng, 4)
        defs = {"x": random_schema(rng, 2), "y": {"properties": {"n": rest, "v": {"$ref": "#/$defs/x"}}}}
        yield {**(schema if isinstance(schema, dict) else {}), "$defs": defs}


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--random":
        print(json.dumps([{"schema": schema} for schema in random_schemas(int(sys.argv[2]))], ensure_ascii=False))
        return
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as file:
            walks = json.load(file)
        texts = 0
        for entry in walks:
            validator = validator_of(entry["schema"])
            for text in entry["walks"]:
                assert is_valid(validator, text), (entry["schema"], text)
                texts += 1
        print(f"{texts} walks of {len(walks)} schemas, all valid")
        return
    all_cases = list(cases())
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in all_cases)
    (DATA / "grammar" / "schemas.json").write_text("[\n" + lines + "\n]\n", encoding="utf-8")
    yes, no = (sum(len(case[k]) for case in all_cases) for k in ("yes", "no"))
    print(f"{len(all_cases)} schemas, {yes} texts allowed, {no} not")


if __name__ == "__main__":
    main()
