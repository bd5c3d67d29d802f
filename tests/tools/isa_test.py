"""Compares what the kernels are compiled with (src/backends/CMakeLists.txt) with what the program looks for in the
processor before it runs them (src/backends/cpu/isa.cpp). A feature that is compiled in and not looked for is an illegal
instruction on some machine."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CXX", "c++")
# What every processor with AVX2 has, and macros that are no instructions.
ALWAYS = {"avx", "sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "crc32", "lahf_sahf", "xsave", "cx16"}
# What Linux calls a feature of aarch64, by the compiler's name.
ARM_CAPABILITIES = {"DOTPROD": "HWCAP_ASIMDDP", "QRDMX": "HWCAP_ASIMDRDM", "ATOMICS": "HWCAP_ATOMICS",
                    "CRC32": "HWCAP_CRC32"}
LOOKED_FOR = {"has_movbe_f16c_and_lzcnt": {"movbe", "f16c", "lzcnt"}}


def macros(compiler, flags):
    return subprocess.run([compiler, *flags.split(), "-dM", "-E", "-x", "c++", os.devnull], check=True,
                          capture_output=True, text=True).stdout


def features(flags):
    return {name.lower() for name in re.findall(r"^#define __([A-Z][A-Z0-9_]*?)__ 1$", macros(COMPILER, flags), re.M)}


def target(compiler):
    return subprocess.run([compiler, "-dumpmachine"], check=True, capture_output=True, text=True).stdout


ARM_COMPILER = COMPILER if target(COMPILER).startswith("aarch64") else shutil.which("aarch64-linux-gnu-g++")


class InstructionSets(unittest.TestCase):
    @unittest.skipUnless(target(COMPILER).startswith("x86_64"), "another architecture")
    def test_all_that_is_compiled_is_looked_for(self):
        flags = dict(re.findall(r"^set\(isa_flags_(\w+) (.*)\)$",
                                (ROOT / "src/backends/CMakeLists.txt").read_text(encoding="utf-8"), re.M))
        # The set of tile registers is looked for by CPUID and a trial, which find_amx() has.
        tiles = [flags.pop(name) for name in ("amx", "amx_emulated")]
        self.assertEqual(tiles, ["${isa_flags_avx512} -mamx-tile -mamx-int8 -mamx-bf16", "${isa_flags_avx2}"])
        self.assertEqual(set(flags), {"baseline", "avx2", "avx512"})
        source = (ROOT / "src/backends/cpu/isa.cpp").read_text(encoding="utf-8")
        checks = re.search(r"isas_of_this_processor\(\) \{(.*?)\n\}", source, re.S)[1]
        plain = features(flags["baseline"])
        found = set()
        for isa, end in (("avx2", "Isa::Avx2)"), ("avx512", "Isa::Avx512)")):
            part = checks[:checks.index(f"push_back({end}")]
            found |= set(re.findall(r'__builtin_cpu_supports\("(\w+)"\)', part))
            for call, names in LOOKED_FOR.items():
                found |= names if f"{call}()" in part else set()
            with self.subTest(isa=isa):
                self.assertEqual(features(flags[isa]) - plain - ALWAYS, found)

    @unittest.skipUnless(ARM_COMPILER, "no compiler for aarch64; ./dev arm64 installs one")
    def test_all_that_is_compiled_for_aarch64_is_looked_for(self):
        flags = dict(re.findall(r"^  set\(isa_flags_(\w+) (.*)\)$",
                                (ROOT / "src/backends/CMakeLists.txt").read_text(encoding="utf-8"), re.M))
        self.assertEqual(set(flags), {"baseline", "dotprod"})
        source = (ROOT / "src/backends/cpu/isa.cpp").read_text(encoding="utf-8")
        compiled = [set(re.findall(r"^#define __ARM_FEATURE_(\w+) 1$", macros(ARM_COMPILER, flags[isa]), re.M))
                    for isa in ("baseline", "dotprod")]
        looked_for = re.search(r"kDotProd = ([\w| ]+);\n.*& kDotProd\) == kDotProd\) out.push_back\(Isa::DotProd\)",
                               source)[1]
        self.assertEqual({ARM_CAPABILITIES[name] for name in compiled[1] - compiled[0]}, set(looked_for.split(" | ")))


if __name__ == "__main__":
    unittest.main()
