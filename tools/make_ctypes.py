#!/usr/bin/env python3
"""Writes python/reprise/_abi.py, the C interface in the words of ctypes, from include/reprise.h.

  tools/make_ctypes.py            fails when the file is not what the header says
  tools/make_ctypes.py --accept   writes it
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/reprise.h"
OUT = ROOT / "python/reprise/_abi.py"
PLAIN = {"size_t": "c_size_t", "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64",
         "double": "c_double", "float": "c_float", "int": "c_int", "reprise_code": "c_int32"}


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)


def type_of(words, stars, known):
    """ctypes' name for `words` (without const) behind so many stars."""
    if stars == 0:
        return "None" if words == "void" else PLAIN.get(words, words)
    if words == "void":
        inner, stars = "c_void_p", stars - 1
    elif words == "char":
        inner, stars = "c_char_p", stars - 1
    elif words in known:
        inner = PLAIN.get(words, words)
    else:  # a handle
        inner, stars = "c_void_p", stars - 1
    return "POINTER(" * stars + inner + ")" * stars


def split_declaration(text, known):
    """(name, type) of "const char* const* name", and of the further names behind commas."""
    text = re.sub(r"\bconst\b|\bstruct\b", " ", text)
    first, *others = [part.strip() for part in text.split(",")]
    match = re.fullmatch(r"(\w+)([\s*]*?)(\w+)", first)
    out = [(match[3], type_of(match[1], match[2].count("*"), known))]
    for other in others:
        name = other.lstrip("* ")
        out.append((name, type_of(match[1], other.count("*"), known)))
    return out


def arguments(text, known):
    out = []
    for part in re.split(r",", text):
        part = re.sub(r"\bconst\b", " ", part).strip()
        if part == "void":
            continue
        match = re.fullmatch(r"(\w+)([\s*]*?)(\w*)", part)
        out.append(type_of(match[1], match[2].count("*"), known))
    return out


def members(body, known):
    out = []
    for text in filter(str.strip, body.split(";")):
        call = re.fullmatch(r"\s*(\w+)\s*\(\*(\w+)\)\((.*)\)\s*", text, re.S)
        if call:
            out.append((call[2], "CFUNCTYPE(" + ", ".join([type_of(call[1], 0, known), *arguments(call[3], known)]) + ")"))
        else:
            out += split_declaration(" ".join(text.split()), known)
    return out


def generate():
    text = without_comments(HEADER.read_text())
    lines_of_code = re.sub(r"^#(?!define REPRISE_ABI)[^\n]*", "", text, flags=re.M)
    structs = re.findall(r"(?:typedef\s+)?struct\s+(\w+)\s*\{(.*?)\}\s*\w*\s*;", text, re.S)
    # A hook takes a pointer to an event, whose structure stands below it.
    known = set(PLAIN) | {name for name, _ in structs}
    lines = ['"""The C interface of libreprise.so. Written by tools/make_ctypes.py; do not edit."""',
             "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, "
             "c_size_t,", "                    c_uint32, c_uint64, c_void_p)", ""]
    lines.append("ABI = " + re.search(r"REPRISE_ABI (\d+)u", text)[1])
    for body in re.findall(r"\benum\s*\{(.*?)\}", text, re.S):
        value = 0
        for entry in filter(None, (e.strip() for e in body.split(","))):
            name, _, given = entry.partition("=")
            value = int(given) if given else value
            lines.append(f"{name.strip().removeprefix('REPRISE_')} = {value}")
            value += 1
    for name, _ in structs:
        lines += ["", "", f"class {name}(Structure):", "    pass"]
    lines += ["", ""]
    for name, body in structs:
        lines.append(f"{name}._fields_ = [")
        lines += [f'    ("{member}", {kind}),' for member, kind in members(body, known)]
        lines.append("]")
    lines += ["", "# name: (result, arguments)", "FUNCTIONS = {"]
    for result, stars, name, given in re.findall(r"REPRISE_API\s+(?:const\s+)?(\w+)\s*(\**)\s*(\w+)\((.*?)\);", lines_of_code,
                                                  re.S):
        lines.append(f'    "{name}": ({type_of(result, len(stars), known)}, [' + ",\n        ".join(arguments(given, known))
                     + "]),")
    lines += ["}", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accept", action="store_true")
    wanted = generate()
    if parser.parse_args().accept:
        OUT.write_text(wanted)
    elif not OUT.exists() or OUT.read_text() != wanted:
        sys.exit(f"{OUT.relative_to(ROOT)} is not what {HEADER.relative_to(ROOT)} says; run tools/make_ctypes.py --accept")


if __name__ == "__main__":
    main()
