#!/usr/bin/env python3
"""Checks that includes go only down the list of tools/layers.txt, and that no device is known outside its backend.

Rules, each reported as "file:line: what is wrong":
  - every #include "folder/..." under src/ is an edge that layers.txt allows, transitively;
  - a folder under src/ has a line in layers.txt and a CMake target whose DEPS are the same;
  - apps/ holds programs, what their flags mean and what they print: its line says which folders of src/ it may use, no
    folder of src/ may include it, and it has no folders but those of PROGRAM_FOLDERS;
  - backends/X includes nothing of backends/Y (only backends/all.cpp knows them all);
  - messages of the library name a setting by its key in backquotes, which programs spell (src/settings/setting.h): no
    flag stands in a text of src/, but for the rows of the table and for the server, which is a program's;
  - vendor headers stay in backends/cuda and backends/ascend; #if on a device stays in backends/all.cpp;
  - models and what they are written with (nn) include nothing of device/, and outside comments name no hardware;
  - checkpoint/ knows no family: outside comments it has no architecture, model type or GGUF name of src/models, neither
    as a word of a text nor in an identifier. What a family has of its own it says in its ModelSpec.
"""

import argparse
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)")
DEVICE_WORD = re.compile(r"(?i)cuda|ascend|(?:^|[^a-z])(?:npu|gpu|hip|rocm|cann)(?:[^a-z]|$)")
OWN_COMPILER = {"cuda": re.compile(r"__CUDACC__|__CUDA_ARCH__")}
VENDOR = {
    "cuda": re.compile(r"^(cuda|cu(blas|dnn|rand|fft|sparse|solver|tlass|b/)|nccl|nvrtc|nvtx|nvml|thrust/)"),
    "ascend": re.compile(r"^(acl/|aclnn|hccl/|atb/|tiling/|graph/ascend)"),
}
# Words inside identifiers too: kind_of_npu, DeviceKind::Cuda, kHasAvx512, __AVX2__.
PROGRAM_FOLDERS = {"chat", "common", "wheel"}  # the terminal, flags and printing, the program of a wheel
KNOWS_NO_HARDWARE = {"models", "nn"}
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
HARDWARE = {"cpu", "gpu", "npu", "tpu", "cuda", "hip", "rocm", "cann", "ascend", "avx", "amx", "sse", "neon", "sve", "isa", "immintrin", "aarch"}
KNOWS_NO_FAMILY = {"checkpoint"}
FAMILY_NAME = re.compile(
    r'\.(?:other_)?(?:architecture|model_type|wrapper)\s*=\s*"(?P<name>[^"]+)"'
    r'|\.gguf\s*=\s*\{\s*\.name\s*=\s*"(?P<gguf>[^"]+)"'
)
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
SOURCE_SUFFIXES = {".h", ".cpp", ".cc", ".cu", ".inc"}
FLAG = re.compile(r'"(?:[^"\\]|\\.)*?(?<![\w-])--[a-z](?:[^"\\]|\\.)*"')
SPELLS_FLAGS = {"settings", "server"}  # and command lines to copy, which begin with the program's name


def read_layers(path):
    """Returns ({folder: [direct dependencies]}, [errors])."""
    layers, errors = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, colon, rest = line.partition(":")
        folder = folder.strip()
        if not colon or folder in layers:
            errors.append(f"{path.name}:{number}: expected one line 'folder: folders it may include' per folder")
            continue
        layers[folder] = rest.split()
        for dep in layers[folder]:
            if dep not in layers:  # also rules out cycles: a dependency stands above its users
                errors.append(f"{path.name}:{number}: {folder} names {dep}, which has no line above it")
    return layers, errors


def closure(layers):
    allowed = {}
    for folder, deps in layers.items():
        allowed[folder] = {folder}
        for dep in deps:
            allowed[folder] |= allowed.get(dep, set())
    return allowed


def cmake_deps(text, folder):
    """The DEPS of house_library(folder ...), or None when there is no such call."""
    text = re.sub(r"#.*", "", text)
    call = re.search(r"house_library\s*\(\s*" + re.escape(folder) + r"\b([^)]*)\)", text)
    if not call:
        return None
    deps, key = [], None
    for word in call.group(1).split():
        if word in ("DEPS", "LIBS", "EXCLUDE", "APART"):
            key = word
        elif key == "DEPS":
            deps.append(word)
    return deps


def check_hardware(shown, text):
    """Places of a model's code that know the hardware. Comments may speak of it."""
    errors = []
    code = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        include = INCLUDE.match(line)
        named = [w.lower() for w in WORD.findall(line) if w.lower() in HARDWARE]
        if include and include.group(2).startswith("device/"):
            errors.append(f"{shown}:{number}: models know no device; {include.group(2)} is out of their reach")
        elif named or "DeviceKind" in line or "DeviceInfo" in line:
            errors.append(f"{shown}:{number}: models name no hardware: {', '.join(named) or 'a kind of device'}")
    return errors


def families_of(src):
    """What the families of src/models are called in files."""
    found = (FAMILY_NAME.finditer(p.read_text(encoding="utf-8")) for p in sorted((src / "models").glob("*.cpp")))
    return {m["name"] or m["gguf"] for matches in found for m in matches}


def plain(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def check_families(shown, text, families):
    """Places of a reader's code that know a family: "gemma2" in a text, GptOssStacks, but not llama3, a kind of scaling."""
    errors = []
    longer = "|".join(re.escape(plain(f)) for f in sorted(families))
    inside = re.compile(rf"(?:{longer})(?!\d)") if families else None
    for number, line in enumerate(COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text).splitlines(), 1):
        if INCLUDE.match(line):
            continue
        named = [w for t in TEXT.findall(line) for w in t.split() if w.strip(".,") in families]
        named += [i for i in IDENTIFIER.findall(TEXT.sub("", line)) if inside and inside.search(plain(i))]
        if named:
            errors.append(f"{shown}:{number}: a family by name: {', '.join(named)}; its ModelSpec says what is its own")
    return errors


def check_file(src, path, allowed, families=frozenset()):
    errors = []
    parts = path.relative_to(src).parts
    program = src.name == "apps"
    folder = "apps" if program else parts[0]
    own = {p.name for p in src.iterdir() if p.is_dir()} if program else set()
    backend = parts[1] if folder == "backends" and len(parts) > 2 else None
    is_device_list = parts == ("backends", "all.cpp")
    shown = path.relative_to(src.parent).as_posix()
    text = path.read_text(encoding="utf-8")
    if folder in KNOWS_NO_HARDWARE:
        errors += check_hardware(shown, text)
    if folder in KNOWS_NO_FAMILY:
        errors += check_families(shown, text, families)
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{shown}:{number}"
        condition = CONDITION.match(line)
        # Sources that a device's compiler and the host's both read ask which of them it is.
        words = condition.group(1) if condition else ""
        if backend in OWN_COMPILER:
            words = OWN_COMPILER[backend].sub("", words)
        if DEVICE_WORD.search(words) and not is_device_list:
            errors.append(f"{where}: #if on a device; only src/backends/all.cpp may have one")
        include = INCLUDE.match(line)
        if not include:
            flag = FLAG.search(line) if not program and folder not in SPELLS_FLAGS else None
            if flag and "reprise " not in line and not line.lstrip().startswith("//"):
                errors.append(f"{where}: a flag in a message; name the setting by its key in backquotes")
            continue
        quote, name = include.groups()
        for owner, pattern in VENDOR.items():
            if quote == "<" and pattern.match(name) or quote == '"' and pattern.match(name) and "/" not in name:
                if backend != owner:
                    errors.append(f"{where}: {name} belongs to a vendor; only src/backends/{owner} may include it")
        target = name.split("/")[0]
        if program and quote == '"' and ("/" not in name or target in own):
            if not (src / name).is_file():
                errors.append(f'{where}: there is no "{name}" in apps/')
            continue
        if quote == "<":
            if "/" in name and target in allowed:
                errors.append(f'{where}: write "{name}" with quotes')
            continue
        if "/" not in name and any(p.match(name) for p in VENDOR.values()):
            continue
        if "/" not in name or target not in allowed:
            errors.append(f'{where}: "{name}" does not start at src/ ("folder/file.h")')
        elif target not in allowed[folder]:
            above = ", ".join(sorted(allowed[folder] - {folder})) or "nothing"
            errors.append(f"{where}: {folder} may not include {target} (it may include: {above})")
        elif backend and target == "backends" and name.count("/") > 1 and name.split("/")[1] != backend:
            errors.append(f"{where}: backends/{backend} may not include backends/{name.split('/')[1]}")
    return errors


def check(root):
    layers, errors = read_layers(root / "tools" / "layers.txt")
    if errors:
        return errors
    allowed = closure(layers)
    src = root / "src"
    families = families_of(src)
    for folder in sorted(p for p in src.iterdir() if p.is_dir()):
        name = folder.name
        files = [f for f in sorted(folder.rglob("*")) if f.is_file()]
        if not files:
            continue
        if name not in layers:
            errors.append(f"src/{name}: no line in tools/layers.txt")
            continue
        cmake = folder / "CMakeLists.txt"
        deps = cmake_deps(cmake.read_text(), name) if cmake.exists() else None
        if deps is None:
            errors.append(f"src/{name}/CMakeLists.txt: no house_library({name} ...)")
        elif set(deps) != set(layers[name]):
            errors.append(
                f"src/{name}/CMakeLists.txt: DEPS are [{' '.join(deps)}], tools/layers.txt says [{' '.join(layers[name])}]"
            )
        for path in files:
            if path.suffix in SOURCE_SUFFIXES:
                errors += check_file(src, path, allowed, families)
    apps = root / "apps"
    if apps.is_dir():
        if "apps" not in layers:
            return errors + ["apps: no line in tools/layers.txt"]
        for folder in sorted(p.name for p in apps.iterdir() if p.is_dir() and p.name not in PROGRAM_FOLDERS):
            errors.append(f"apps/{folder}: programs read flags and print; what they call belongs in a folder of src/")
        for path in sorted(apps.rglob("*")):
            if path.suffix in SOURCE_SUFFIXES:
                errors += check_file(apps, path, allowed)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    errors = check(parser.parse_args().root)
    print("\n".join(errors) if errors else "includes go down only")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
