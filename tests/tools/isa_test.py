"""Compares what the kernels are compiled with (src/backends/CMakeLists.txt) with what the program looks for in the
processor before it runs them (src/backends/cpu/isa.cpp). A feature that is compiled in and not looked for is an illegal
instruction on some machine."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CXX", "c++")
# What every processor with AVX2 has, and macros that are no instructions.
ALWAYS = {"avx", "sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "crc32", "lahf_sahf", "xsave", "cx16"}
LOOKED_FOR = {"has_movbe_f16c_and_lzcnt": {"movbe", "f16c", "lzcnt"}}


def features(flags):
    text = subprocess.run([COMPILER, *flags.split(), "-dM", "-E", "-x", "c++", os.devnull], check=True,
                          capture_output=True, text=True).stdout
    return {name.lower() for name in re.findall(r"^#define __([A-Z][A-Z0-9_]*?)__ 1$", text, re.M)}


class InstructionSets(unittest.TestCase):
    def test_all_that_is_compiled_is_looked_for(self):
        flags = dict(re.findall(r"^set\(isa_flags_(\w+) (.*)\)$",
                                (ROOT / "src/backends/CMakeLists.txt").read_text(encoding="utf-8"), re.M))
        self.assertEqual(set(flags), {"baseline", "avx2", "avx512"})
        source = (ROOT / "src/backends/cpu/isa.cpp").read_text(encoding="utf-8")
        checks = re.search(r"supported_isas\(\) \{(.*?)\n\}", source, re.S)[1]
        plain = features(flags["baseline"])
        found = set()
        for isa, end in (("avx2", "Isa::Avx2)"), ("avx512", "Isa::Avx512)")):
            part = checks[:checks.index(f"push_back({end}")]
            found |= set(re.findall(r'__builtin_cpu_supports\("(\w+)"\)', part))
            for call, names in LOOKED_FOR.items():
                found |= names if f"{call}()" in part else set()
            with self.subTest(isa=isa):
                self.assertEqual(features(flags[isa]) - plain - ALWAYS, found)


if __name__ == "__main__":
    unittest.main()
