#!/usr/bin/env python3
"""Writes the wheel reprise-llm from python/reprise and what CMake's target `wheel` has built.

  tools/make_wheel.py --built build/release/wheel --out dist

What the library needs of Debian besides the C library lies beside it. The tag says which glibc the files ask for.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so\.\d+$")
MOST_BYTES = 15_000_000
# The C++ library of a distribution comes with its glibc: by version of its symbols, the least glibc (auditwheel's policies).
CXX_GLIBC = ((29, 34), (30, 35), (31, 38), (32, 38))
TIME = (2026, 1, 1, 0, 0, 0)  # the same files give the same wheel
METADATA = """Metadata-Version: 2.1
Name: reprise-llm
Version: {version}
Summary: Large language models in your process: vLLM's LLM and SGLang's Engine over execution graphs you can see
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
"""


def output(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def needed(file):
    """Libraries of the system that it is linked with and that not every machine has."""
    out = []
    for name, path in re.findall(r"(\S+) => (\S+) \(0x", output("ldd", file)):
        if not SYSTEM.match(name) and "/_lib/" not in path:
            out.append((name, pathlib.Path(path).resolve()))
    return out


def glibc_of(files):
    glibc = 17
    for file in files:
        symbols = output("objdump", "-T", file)
        glibc = max([glibc, *map(int, re.findall(r"\bGLIBC_2\.(\d+)", symbols))])
        cxx = max(map(int, re.findall(r"\bGLIBCXX_3\.4\.(\d+)", symbols)), default=0)
        glibc = max([glibc, *(least for version, least in CXX_GLIBC if cxx >= version)])
    return glibc


def version():
    return re.search(r"project\(reprise VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def content(built):
    """{path in the wheel: (bytes, whether it is a program)}."""
    library, program = built / "_lib/libreprise.so.0", built / "_bin/reprise"
    third = dict(needed(library) + needed(program))
    tag = f"py3-none-manylinux_2_{glibc_of([library, program, *third.values()])}_{os.uname().machine}"
    out = {f"reprise/{p.name}": (p.read_bytes(), False) for p in sorted((ROOT / "python/reprise").iterdir()) if p.is_file()}
    out["reprise/_lib/libreprise.so.0"] = (library.read_bytes(), True)
    out["reprise/_bin/reprise"] = (program.read_bytes(), True)
    for name, path in sorted(third.items()):
        out[f"reprise/_lib/{name}"] = (path.read_bytes(), True)
    info = f"reprise_llm-{version()}.dist-info"
    out[f"{info}/METADATA"] = (METADATA.format(version=version()).encode(), False)
    out[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False)
    out[f"{info}/entry_points.txt"] = (b"[console_scripts]\nreprise = reprise.__main__:main\n", False)
    out[f"{info}/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    return out, info, tag


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--built", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--most-bytes", type=int, default=MOST_BYTES, help="a wheel with the CUDA backend is larger")
    options = parser.parse_args()
    files, info, tag = content(options.built)
    record = []
    for name, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}\n")
    record.append(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = ("".join(record).encode(), False)
    options.out.mkdir(parents=True, exist_ok=True)
    wheel = options.out / f"reprise_llm-{version()}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, (data, program) in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            archive.writestr(entry, data)
    size = wheel.stat().st_size
    print(f"{wheel} ({size / 1e6:.1f} MB)")
    if size > options.most_bytes:
        sys.exit(f"{wheel.name} has {size} bytes; at most {options.most_bytes} are allowed")


if __name__ == "__main__":
    main()
