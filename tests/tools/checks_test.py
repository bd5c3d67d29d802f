"""The checks of ./dev check fail when they should, and only then."""

import contextlib
import io
import os
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import check_cuda  # noqa: E402
import check_docs  # noqa: E402
import check_headers  # noqa: E402
import check_layers  # noqa: E402
import check_names  # noqa: E402
import check_ops  # noqa: E402
import check_prototypes  # noqa: E402
import check_scoreboard  # noqa: E402
import check_source  # noqa: E402


class Tree(unittest.TestCase):
    """A small repository in a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# What ptxas prints of two kernels, as nvcc 13.0 passes it on.
PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN7reprise4cuda10run_kernelINS0_8CopyRowsEEEvT_' for 'sm_89'
ptxas info    : Function properties for _ZN7reprise4cuda10run_kernelINS0_8CopyRowsEEEvT_
    {} bytes stack frame, {} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
ptxas info    : Compiling entry function 'plain' for 'sm_89'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 512 bytes cmem[0]
"""


class Cuda(Tree):
    """The compiler is a script here; what it prints is the vendor's."""

    def run_with(self, body, *arguments):
        """Status, standard output and standard error with a compiler of that body."""
        self.write("nvcc", f"#!/bin/sh\n{body}\n")
        (self.root / "nvcc").chmod(0o755)
        self.write("a.cu", "__global__ void a() {}\n")
        out, err = io.StringIO(), io.StringIO()
        command = ["check_cuda", "--arch", "89", *arguments, str(self.root / "a.cu")]
        with mock.patch.object(sys, "argv", command), mock.patch.dict(os.environ, {"CUDACXX": f"{self.root}/nvcc"}), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return check_cuda.main(), out.getvalue(), err.getvalue()

    def ptxas(self, frame, spilled):
        return f"cat >&2 <<'E'\n{PTXAS.format(frame, spilled)}E"

    def test_what_is_fine(self):
        status, out, err = self.run_with(self.ptxas(0, 0))
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"sm_89 +a\.cu .* 2 kernels, 255 registers at most")

    def test_spills_and_frames(self):
        for frame, spilled, words in ((16, 8, "CopyRows: 8 bytes of registers are spilled"),
                                      (512, 0, "CopyRows: a stack frame of 512 bytes")):
            status, _, err = self.run_with(self.ptxas(frame, spilled))
            self.assertEqual(status, 1)
            self.assertEqual(err, f"error: {self.root}/a.cu: sm_89: {words}\n")
        with mock.patch.dict(check_cuda.MAY_HAVE_FRAMES, {"CopyRows": "a test"}):
            self.assertEqual(self.run_with(self.ptxas(512, 0))[0], 0)
            self.assertEqual(self.run_with(self.ptxas(512, 8))[0], 1, "spills are none of its frame")
        with mock.patch.dict(check_cuda.MAY_SPILL, {"CopyRows": 16}):
            self.assertEqual(self.run_with(self.ptxas(16, 12))[0], 0, "rounded up")
            self.assertEqual(self.run_with(self.ptxas(24, 24))[0], 1, "more than it may")
            self.assertEqual(self.run_with(self.ptxas(24, 16))[0], 1, "an array beside it")

    def test_what_does_not_compile(self):
        status, _, err = self.run_with("echo 'a.cu(3): error: no such thing' >&2; exit 2", "--quick")
        self.assertEqual(status, 1)
        self.assertIn("sm_89: does not compile: a.cu(3): error: no such thing", err)

    def test_a_compiler_that_tells_nothing(self):
        self.assertIn("ptxas told of no kernel", self.run_with("true")[2])
        self.assertEqual(self.run_with("true", "--quick")[0], 0)

    def test_the_time(self):
        status, out, _ = self.run_with("exec sleep 20", "--seconds", "0.2")
        self.assertEqual(status, 0)
        self.assertIn("note: 1 of 1 not compiled in 0 s: sm_89 a.cu", out)

    def test_no_compiler(self):
        with mock.patch.object(check_cuda, "find_nvcc", return_value=None):
            status, out, _ = self.run_with("true")
        self.assertEqual(status, 0)
        self.assertIn("note: nvcc was not found", out)

    def test_the_flags_of_the_build(self):
        house = (ROOT / "cmake/house.cmake").read_text() + (ROOT / "src/backends/CMakeLists.txt").read_text()
        for flag in ("--fmad=false", "-ffp-contract=off", "--expt-relaxed-constexpr"):
            self.assertIn(flag, house)
            self.assertTrue(any(flag in f for f in check_cuda.FLAGS))


class Headers(Tree):
    """Headers are parsed behind the libraries, so what these hide is looked for in the text."""

    def errors(self, **headers):
        for name, text in headers.items():
            self.write(f"src/{name}.h", text)
        compiler = check_headers.compiler_of(["c++"])
        found = [(pathlib.Path(f"{name}.h"), ("-std=c++20", f"-I{self.root}/src"), compiler) for name in headers]
        return check_headers.check(found, [self.root / "src"], 2)

    def test_each_header_alone(self):
        errors, full = self.errors(
            well="#include <string>\n#include <vector>\nstd::vector<std::string> all();  // std::map of none\n",
            through='#include "well.h"\n// std::optional\ninline auto first() { return std::move(all().front()); }\n',
            hidden="#include <cstdint>\nstd::vector<int64_t> a();\n", plain="int64_t b();\n", lacks="Well make();\n",
            unknown="#include <complex>\nstd::complex<float> a();\n", worse="#include <vector>\nstd::complex<float> a();\n")
        self.assertEqual(full, 2, "std::complex is not in the table")
        self.assertEqual(len(errors), 4, errors)
        self.assertIn("hidden.h:2: std::vector and no <vector>", errors[0])
        self.assertIn("plain.h:1: int64_t and no <cstdint>", errors[1])
        self.assertIn("lacks.h does not compile alone:\n", errors[2])
        self.assertIn("worse.h does not compile alone:\n", errors[3])


class Layers(Tree):
    def setUp(self):
        super().setUp()
        self.write("tools/layers.txt", "# a comment\nbase:\ndevice: base\nops: device\nbackends: ops\n")
        self.write("src/base/CMakeLists.txt", "house_library(base LIBS fmt::fmt)\n")
        self.write("src/device/CMakeLists.txt", "house_library(device DEPS base)\n")
        self.write("src/ops/CMakeLists.txt", "house_library(ops DEPS device LIBS a::b)\n")
        self.write("src/backends/CMakeLists.txt", "house_library(backends DEPS ops)\n")

    def errors(self, name=None, text=None):
        if name:
            self.write(name, text)
        return check_layers.check(self.root)

    def only(self, name, text, words):
        errors = self.errors(name, text)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(words, errors[0])
        self.assertIn(name, errors[0])

    def test_downward_includes_are_fine(self):
        self.assertEqual(self.errors("src/ops/a.h", '#include <vector>\n#include "base/b.h"\n#include "ops/c.h"\n'), [])

    def test_upward_include(self):
        self.only("src/device/a.cpp", '#include "base/b.h"\n#include "ops/c.h"\n', "a.cpp:2: device may not include ops")

    def test_include_of_unknown_folder(self):
        self.only("src/base/a.h", '#include "elsewhere/b.h"\n', "does not start at src/")

    def test_include_beside_the_file(self):
        self.only("src/base/a.h", '#include "b.h"\n', "does not start at src/")

    def test_own_header_in_angle_brackets(self):
        self.only("src/ops/a.h", "#include <base/b.h>\n", "with quotes")

    def test_vendor_header_outside_its_backend(self):
        self.only("src/device/a.cpp", "#include <cuda_runtime.h>\n", "only src/backends/cuda")
        self.write("src/device/a.cpp", "")
        self.only("src/backends/cuda/b.cpp", "#include <acl/acl.h>\n", "only src/backends/ascend")

    def test_vendor_header_in_its_backend(self):
        self.assertEqual(self.errors("src/backends/ascend/a.cpp", "#include <acl/acl.h>\n"), [])
        self.assertEqual(self.errors("src/backends/cuda/a.cpp", "#include <cuda_runtime.h>\n"), [])

    def test_backends_do_not_know_each_other(self):
        self.only("src/backends/cpu/a.cpp", '#include "backends/cuda/b.h"\n', "may not include backends/cuda")
        self.write("src/backends/cpu/a.cpp", '#include "backends/registries.h"\n')
        self.assertEqual(self.errors("src/backends/all.cpp", '#include "backends/cuda/b.h"\n'), [])

    def test_condition_on_a_device(self):
        self.only("src/ops/a.h", "#ifdef REPRISE_WITH_CUDA\n#endif\n", "#if on a device")
        self.write("src/ops/a.h", "#ifdef __AVX2__\n#endif\n")
        self.assertEqual(self.errors("src/backends/all.cpp", "#if defined(REPRISE_ASCEND)\n#endif\n"), [])

    def test_models_name_no_hardware(self):
        self.write("tools/layers.txt", "base:\ndevice: base\nops: device\nmodels: ops\nbackends: ops\n")
        self.write("src/models/CMakeLists.txt", "house_library(models DEPS ops)\n")
        self.assertEqual(self.errors("src/models/a.cpp", "// As on a GPU.\n/* CUDA\n has it */ int input_isabel;\n"), [])
        for line in ("if (kind == DeviceKind::Null) return;", "bool on_npu = true;", "const bool kAvx512 = false;",
                     'if (name == "ascend") {}', "#include <immintrin.h>", "#ifdef __AVX2__\n#endif"):
            with self.subTest(line=line):
                self.only("src/models/a.cpp", f"int a;\n{line}\n", "a.cpp:2: models name no hardware")
        self.only("src/models/a.cpp", '#include "device/device.h"\n', "models know no device")

    def test_checkpoint_knows_no_family(self):
        self.write("tools/layers.txt", "base:\ndevice: base\ncheckpoint: base\nops: device\nmodels: ops\nbackends: ops\n")
        self.write("src/models/CMakeLists.txt", "house_library(models DEPS ops)\n")
        self.write("src/checkpoint/CMakeLists.txt", "house_library(checkpoint DEPS base)\n")
        self.write("src/models/a.cpp", '.architecture = "FooForCausalLM", .model_type = "foo_moe",\n'
                   '.wrapper = "FooForImages", .gguf = {.name = "foo-2"}\n')
        self.assertEqual(check_layers.families_of(self.root / "src"),
                         {"FooForCausalLM", "foo_moe", "FooForImages", "foo-2"})
        fine = '// foo_moe has it.\nconst char* a = "food foo_moes, as [\\"FooForCausalLM\\"]"; int foo_moe3;\n'
        self.assertEqual(self.errors("src/checkpoint/a.cpp", fine), [])
        for line in ('f("bar foo-2");', 'f("foo_moe.");', "void rename_foo_moe();", "struct FooMoeStacks {};"):
            with self.subTest(line=line):
                self.only("src/checkpoint/a.cpp", f"int a;\n{line}\n", "a.cpp:2: a family by name")

    def test_condition_on_a_backends_own_compiler(self):
        self.assertEqual(self.errors("src/backends/cuda/a.h", "#if defined(__CUDACC__)\n#endif\n"), [])
        self.only("src/backends/cuda/b.h", "#ifdef REPRISE_HAS_CUDA\n#endif\n", "#if on a device")
        self.write("src/backends/cuda/b.h", "")
        self.only("src/backends/cpu/b.h", "#ifdef __CUDACC__\n#endif\n", "#if on a device")

    def test_cmake_and_layers_disagree(self):
        self.only("src/ops/CMakeLists.txt", "house_library(ops DEPS base device)\n", "DEPS are [base device]")

    def test_folder_without_target(self):
        self.only("src/ops/CMakeLists.txt", "# nothing\n", "no house_library(ops")

    def test_folder_without_line(self):
        errors = self.errors("src/extra/a.h", "")
        self.assertEqual(errors, ["src/extra: no line in tools/layers.txt"])

    def test_cycle(self):
        self.assertIn("no line above", self.errors("tools/layers.txt", "base: device\ndevice: base\n")[0])

    def test_programs(self):
        self.write("apps/common/flags.h", "")
        self.assertEqual(self.errors(), ["apps: no line in tools/layers.txt"])
        layers = (self.root / "tools/layers.txt").read_text()
        self.write("tools/layers.txt", layers + "apps: device\n")
        self.assertEqual(self.errors("apps/main.cpp", '#include "common/flags.h"\n#include "device/a.h"\n'), [])
        self.only("apps/main.cpp", '#include "ops/a.h"\n', "apps may not include ops")
        self.only("apps/main.cpp", '#include "common/none.h"\n', "there is no")
        self.only("apps/main.cpp", "#if HAVE_CUDA\n#endif\n", "#if on a device")
        self.only("apps/main.cpp", "#include <acl/acl.h>\n", "only src/backends/ascend")
        self.write("apps/main.cpp", 'fail("--dtype is wrong");\n')
        self.only("src/ops/a.h", '#include "apps/main.h"\n', "apps")
        self.write("src/ops/a.h", "")
        self.assertIn("apps/tune: programs read flags and print", self.errors("apps/tune/tuner.h", "")[0])

    def test_flags_in_messages(self):
        self.only("src/ops/a.cpp", 'return invalid("lower --max-total-tokens");\n', "by its key")
        self.assertEqual(self.errors("src/ops/a.cpp", 'return invalid("lower `max_total_tokens`");\n'), [])
        self.assertEqual(self.errors("src/ops/a.cpp", 'return f("see: reprise graph dump --phase decode");\n'), [])
        self.assertEqual(self.errors("src/ops/a.cpp", 'x("models--org--name");\n'), [])

    def test_the_layers_of_the_repository(self):
        layers, errors = check_layers.read_layers(ROOT / "tools" / "layers.txt")
        self.assertEqual(errors, [])
        self.assertEqual(list(layers)[-1], "apps")
        self.assertNotIn("server", check_layers.closure(layers)["api"])
        self.assertEqual(check_layers.closure(layers)["checkpoint"], {"checkpoint", "base"})


class Prototypes(Tree):
    """What the backend calls and what the simulator has, changed in one place."""

    FILES = ("OPERATORS", "LIBRARY", "COLLECTIVES", "CONSTANTS", "SIM_OPERATORS", "SIM_RUNTIME", "SIM_COLLECTIVES")

    def setUp(self):
        super().setUp()
        for file in self.FILES:
            name = getattr(check_prototypes, file)
            self.write(name, (ROOT / name).read_text())

    def only(self, file, old, new, words):
        name = getattr(check_prototypes, file)
        text = (ROOT / name).read_text()
        self.assertIn(old, text)
        self.write(name, text.replace(old, new, 1))
        self.assertEqual(check_prototypes.check(self.root), [words])
        self.write(name, text)

    def test_the_repository_agrees(self):
        self.assertEqual(check_prototypes.check(ROOT), [])

    def test_every_kind_of_difference(self):
        self.only("OPERATORS", "Operator<T, T, S, MT> add{", "Operator<T, S, T, MT> add{",
                  "aclnnAdd: argument 2 is const aclScalar* in the backend, const aclTensor* in the simulator")
        self.only("OPERATORS", "Operator<T, T, MT, int8_t> matmul{", "Operator<T, T, MT, i64> matmul{",
                  "aclnnMatmul: argument 4 is int64_t in the backend, int8_t in the simulator")
        self.only("OPERATORS", "Operator<T, T, MT> mul{", "Operator<T, T, T> mul{",
                  "aclnnMul: argument 3 is const aclTensor* in the backend, aclTensor* in the simulator")
        self.only("SIM_OPERATORS", "aclTensor* rstdOut, aclTensor* xOut);", "aclTensor* rstdOut);",
                  "aclnnAddRmsNorm: 7 arguments in the backend, 6 in the simulator")
        self.only("SIM_OPERATORS", "int64_t dim, const aclTensor* out);", "int32_t dim, const aclTensor* out);",
                  "aclnnSwiGlu: argument 2 is int64_t in the backend, int32_t in the simulator")

    def test_bounded_operators(self):
        self.only("SIM_OPERATORS", "keyRopeAntiquantScaleOptional, int64_t numHeads,",
                  "keyRopeAntiquantScaleOptional, bool numHeads,",
                  "aclnnFusedInferAttentionScoreV3: argument 28 is int64_t in the backend, bool in the simulator")

    def test_functions_of_the_runtime(self):
        self.only("LIBRARY", "aclrtMalloc, aclError, (void**, size_t, int32_t)",
                  "aclrtMalloc, aclError, (void**, int32_t, size_t)",
                  "aclrtMalloc: argument 2 is int32_t in the backend, size_t in the simulator")
        self.only("SIM_RUNTIME", "aclError aclrtFree(void* devPtr);", "",
                  "aclrtFree: the backend calls it, the simulator does not declare it")
        self.only("SIM_RUNTIME", "double ascendSimHostMicros();", "float ascendSimHostMicros();",
                  "ascendSimHostMicros: the backend takes its result as double, the simulator gives float")

    def test_collectives(self):
        self.only("COLLECTIVES", "HcclBroadcast, int32_t, (void*, uint64_t, int32_t, uint32_t,",
                  "HcclBroadcast, int32_t, (void*, uint64_t, uint32_t, int32_t,",
                  "HcclBroadcast: argument 3 is uint32_t in the backend, int32_t in the simulator")
        self.only("SIM_COLLECTIVES", "HcclResult HcclCommDestroy(HcclComm comm);", "",
                  "HcclCommDestroy: the backend calls it, the simulator does not declare it")

    def test_values(self):
        self.only("SIM_RUNTIME", "ACL_HBM_MEM = 1", "ACL_HBM_MEM = 3",
                  "ACL_HBM_MEM: 1 in the backend, 3 in the simulator")

    def test_what_no_longer_reads_is_an_error(self):
        self.write(check_prototypes.OPERATORS, "struct Operators {};\n")
        self.assertTrue(any("prototypes found" in e for e in check_prototypes.check(self.root)))


class Scoreboard(Tree):
    TEST = "- `base/a_test One.Two`"

    def setUp(self):
        super().setUp()
        self.write("tests/base/a_test.cpp", "TEST(One, Two) {}\nTEST_P(Three,\n       Four) {}\n// TEST(No, No)\n")
        self.write("tests/tools/checks_test.py", "class Five:\n    def test_six(self):\n        pass\n")
        self.write("docs/figures.md", "")
        self.features = {f"F{n:02}": self.feature(f"F{n:02}", "b", self.TEST) for n in check_scoreboard.IDS}

    def feature(self, name, words, *tests, title=" a"):
        return "\n".join([f"### {name}{title}", "", words, "", *tests, ""])

    def errors(self, **features):
        text = "\n".join({**self.features, **features}.values())
        self.write("docs/scoreboard.md", f"# Scoreboard\n\n## Some\n\n{text}\n## More\n\nWords.\n")
        return check_scoreboard.check_scoreboard(self.root)

    def only(self, words, **features):
        errors = self.errors(**features)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(words, errors[0])

    def test_what_is_fine(self):
        self.assertEqual(self.errors(), [])
        fine = self.feature("F02", "b", "- `base/a_test Three.Four`", "- `tools/checks_test.py Five.test_six`")
        self.assertEqual(self.errors(F02=fine), [])
        self.assertEqual(self.errors(F02=self.feature("F02", "b", "- measured: [here](figures.md#x)")), [])
        self.assertEqual(self.errors(F18=self.feature("F18", "Missing: an error says so")), [])

    def test_what_is_not(self):
        def tests(*lines, **more):
            return self.feature("F02", "b", *lines, **more)

        self.only("no test One.Three", F02=tests("- `base/a_test One.Three`"))
        self.only("no test No.No", F02=tests("- `base/a_test No.No`"))
        self.only("no test Five.six", F02=tests("- `tools/checks_test.py Five.six`"))
        self.only("no tests/base/b_test.cpp", F02=tests("- `base/b_test One.Two`"))
        self.only("no docs/none.md", F02=tests("- measured: [here](none.md)"))
        self.only("F02 names no test", F02=tests("- One.Two"))
        self.only("F02 has no name", F02=tests(self.TEST, title=""))
        self.only("F02 is missing", F02="")
        for one in ("F01", "F18", "F19", "F56", "F65", "F68"):
            self.only(f"{one} is missing", **{one: ""})
        self.only("F69 is not asked for", F69=self.feature("F69", "b", self.TEST))
        self.only("F18 names no test", F18=self.feature("F18", "Missing:"))
        self.only("F18 names no test", F18=self.feature("F18", "This is missing: an error says so"))
        self.only("F02 does not say what is there", F02=self.feature("F02", "", self.TEST))
        self.only("F03 is out of order", F02=self.features["F03"], F03=self.features["F02"])
        self.only("F02 is there twice", again=self.features["F02"])
        # What follows the last feature of a part is not its own.
        self.only("F68 names no test", F68=self.feature("F68", "b") + f"\n## Other\n\n{self.TEST}\n")

    def test_the_page_itself(self):
        self.assertEqual(check_scoreboard.check(ROOT), [])


class Figures(Tree):
    FINE = "# A\n\n### B\n\nMachine: Intel. Commit: `1234567`. Command:\n\n```\nreprise doctor\n```\n\n| a |\n|---|\n| 1 |\n"

    def errors(self, text):
        self.write("docs/f.md", text)
        return check_scoreboard.check_figures(self.root, "docs/f.md")

    def test_what_is_fine(self):
        self.assertEqual(self.errors(self.FINE), [])
        self.assertEqual(self.errors("# A\n\n| machine | what |\n|---|---|\n| X | y |\n"), [])

    def test_what_is_not(self):
        for gone, name in (("Machine: Intel. ", "machine"), ("Commit: `1234567`. ", "commit"), ("reprise doctor\n", "command")):
            errors = self.errors(self.FINE.replace(gone, ""))
            self.assertEqual(len(errors), 1, errors)
            self.assertIn(f"\"B\" has figures without {name}", errors[0])
        self.assertIn("machine", self.errors(self.FINE + "### C\n\n| a |\n|---|\n")[0])
        self.assertIn("is missing", check_scoreboard.check_figures(self.root, "docs/none.md")[0])

    def test_a_commit_in_each_row(self):
        table = "\n| a | commit |\n|---|---|\n| 1 | `1234567` |\n"
        page = self.FINE.replace("Commit: `1234567`. ", "").replace("\n| a |\n|---|\n| 1 |\n", table)
        self.assertEqual(self.errors(page), [])
        self.assertEqual(self.errors(page + "| 2 | soon |\n"), ["docs/f.md:14: a row without its commit"])


class Coverage(Tree):
    TEST = "  - `base/a_test One.Two`"

    def errors(self, *, key=TEST, cell="A", rule=TEST, columns="", more=""):
        self.write("tests/base/a_test.cpp", "TEST(One, Two) {}\n")
        self.write("docs/ascend-coverage.md", "\n".join([
            "| model | eager | whole |", "|---|---|---|", f"| one | {cell} | A, B |{columns}", "| two | no 1 | A |", "",
            "- **no 1**: it cannot", "", "- never", rule, "",
            "- **A**: this", key, "- **B**: that", self.TEST, more, ""]))
        return check_scoreboard.check_coverage(self.root)

    def test_what_is_fine(self):
        self.assertEqual(self.errors(), [])
        self.assertEqual(self.errors(cell="no 1"), [])
        self.assertEqual(self.errors(rule="  and\n  - `base/a_test One.Two`"), [])

    def test_what_is_not(self):
        for words, changes in {
            "has no test One.Three": {"key": "  - `base/a_test One.Three`"},
            "the key A names no test": {"key": "  - One.Two"},
            '"" is neither': {"cell": ""},
            '"C" is neither': {"cell": "C"},
            '"no 2" is neither': {"cell": "no 2"},
            '"no" is neither': {"cell": "no"},
            "never names no test": {"rule": "  - somewhere"},
            "4 columns, the table has 3": {"columns": " more |"},
            "the key B is there twice": {"more": "- **B**: again\n  - `base/a_test One.Two`"},
            "the key D is used nowhere": {"more": "- **D**: more\n  - `base/a_test One.Two`"},
        }.items():
            with self.subTest(words=words):
                errors = self.errors(**changes)
                self.assertEqual(len(errors), 1, errors)
                self.assertIn(words, errors[0])

    def test_missing(self):
        self.assertEqual(check_scoreboard.check_coverage(self.root), ["docs/ascend-coverage.md: is missing"])


class Docs(Tree):
    """Lines, links and commands of the pages; `reprise` is a script here."""

    PROGRAM = """#!/bin/sh
case "$*" in
  *--help-all) echo "there is no such flag"; exit 1;;
  "graph dump --help")
    printf 'Options:\\n  -h,--help   help\\n  --format {text, json}   of it\\n%33s --no-such-thing\\n' '';;
  "graph --help") printf 'Subcommands:\\n  dump   The graph\\n\\nmore\\n';;
  "--help") printf 'Subcommands:\\n  graph   All\\n  pull   One\\n\\nmore\\n';;
  "pull --help") printf 'Options:\\n  --model-path,--model PATH   it\\n';;
  *--hidden*) echo "error: --not-a-flag is not a flag"; exit 1;;
  *) for word in "$@"; do case $word in -*) echo "error: $word is not a flag"; exit 1;; esac; done;;
esac
"""

    def errors(self, text, name="docs/a.md", binary=True, marked=True):
        program = self.root / "reprise"
        program.write_text(self.PROGRAM)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.write(name, text + ("<!-- commands of this page are not run: a test -->\n" if marked else ""))
        return check_docs.check(self.root, program if binary else None)

    def only(self, words, text, **more):
        errors = self.errors(text, **more)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(words, errors[0])

    def test_columns(self):
        self.assertEqual(self.errors("x" * 120 + "\n"), [])
        self.only("docs/a.md:2: 121 columns", "\n" + "ä" * 121 + "\n")
        self.write("docs/a.md", "")
        self.only("README.md:2: 130 columns", "```\n" + "x" * 130 + "\n```\n", name="README.md")

    def test_links(self):
        self.write("docs/b.md", "# One `two` & (three)\n\n## Same\n\n## Same\n\n```\n# None\n```\n")
        self.write("src/c.h", "")
        for fine in ("[x](b.md)", "[x](b.md#one-two--three)", "[x](b.md#same-1)", "[x](../src/c.h)", "[x](#here)",
                     "[x](https://a.b/c)", "`[x](none.md)`", "[x\ny](b.md)", "[![i](../src/c.h)](b.md)"):
            with self.subTest(fine=fine):
                self.assertEqual(self.errors(f"# Here\n\n{fine}\n"), [])
        self.assertEqual(self.errors("```\n[x](none.md)\n```\n"), [])
        for bad, words in {"[x](none.md)": "docs/a.md:3: there is no none.md",
                           "[x](b.md#none)": "b.md has no heading #none",
                           "[x](#none)": "this page has no heading #none", "![x](none.png)": "there is no none.png",
                           "[x\ny](none.md)": "docs/a.md:4: there is no none.md", "[x]: none.md": "there is no none.md",
                           "[![i](../src/d.h)](b.md)": "there is no ../src/d.h",
                           "[x](/src/c.h)": "there is no /src/c.h",
                           "[x](../../else)": "there is no ../../else"}.items():
            with self.subTest(bad=bad):
                self.only(words, f"# Here\n\n{bad}\n")

    def test_marks(self):
        block = "```\n$ reprise pull\n```\n"
        words = "docs/a.md:3: nothing says whether this block of commands is run"
        for mark in ("run", "run: exit=1", "run:\n$ reprise graph dump\n", "serve", "not run: it needs a network"):
            with self.subTest(mark=mark):
                self.assertEqual(self.errors(f"# A\n<!-- {mark} -->\n{block}", marked=False), [])
        for mark in ("<!-- not run -->", "<!-- running -->", "text"):
            with self.subTest(mark=mark):
                self.only(words, f"# A\n{mark}\n{block}", marked=False)
        for fine in ("```\nwhat is printed\n```\n", "```python\nreprise = 1\n```\n"):
            self.assertEqual(self.errors(fine, marked=False), [])
        self.only(words.replace(":3:", ":6:"), f"<!-- run -->\n{block}\n{block}", marked=False)
        for first in ("curl http://x", "cmake --preset a", "X=1 reprise pull"):
            with self.subTest(first=first):
                self.assertIn("nothing says", self.errors(f"```\n{first} \n```\n", binary=False, marked=False)[0])

    def test_commands_that_are_fine(self):
        for line in ("reprise graph dump --format json", "$ reprise graph dump --format=text \\\n    -h",
                     "reprise COMMAND --x", "reprise ... --x",
                     "build/release/bin/reprise pull --model M 2>&1 | less --zzz", "X=1 reprise graph dump --hidden 3",
                     "reprise pull --model-path x   # and --more", "reprise graph dump --format text|json",
                     "other --flag", "reprise graph dump|dump", "try: reprise none"):
            with self.subTest(line=line):
                self.assertEqual(self.errors(f"```\n{line}\n```\n"), [])
        self.assertEqual(self.errors("Use `reprise graph\ndump --format json`.\n"), [])
        self.assertEqual(self.errors("```python\nreprise none\n```\n"), [])

    def test_commands_that_are_not(self):
        for line, words in {"reprise none": 'docs/a.md:2: "none" is not a command of "reprise"',
                            "reprise graph none": '"none" is not a command of "reprise graph"',
                            "$ reprise graph dump --none 1": '"reprise graph dump" has no flag --none',
                            "reprise graph dump --no-such-thing": "has no flag --no-such-thing",
                            "reprise graph dump --format xml": '--format has no value "xml"; there are: text, json',
                            "reprise pull \\\n  --format json": '"reprise pull" has no flag --format',
                            "./dev bisect -- build/release/bin/reprise pull --no": '"reprise pull" has no flag --no',
                            }.items():
            with self.subTest(line=line):
                self.write("dev", "do_bisect() {\n")
                self.only(words, f"```\n{line}\n```\n")
                self.assertEqual(self.errors(f"```\n{line}\n```\n", binary=False), [])
        self.only('docs/a.md:2: "none" is not a command', "Some\n`reprise none`.\n")

    def test_scripts(self):
        self.write("dev", "all_checks='one two'\nnamed_checks='four'\ndo_check() {\ndo_new-op() {\n")
        self.write("tools/a.py", 'parser.add_argument("--only")\n')
        for fine in ("./dev check one", "./dev check four two", "./dev new-op x", "./dev help", "./dev VERB", "tools/a.py --only x", "./dev"):
            self.assertEqual(self.errors(f"`{fine}`\n"), [])
        for bad, words in {"./dev none": 'no verb "none"', "./dev check three": 'no "three"',
                           "tools/b.py": "no tools/b.py", "tools/a.py --none": "no flag --none"}.items():
            self.only(words, f"`{bad}`\n")


class Ops(Tree):
    def setUp(self):
        super().setUp()
        self.write("src/ops/core.cpp", 'ops.add("silu(Rows x) -> Tensor", infer_same, "");\n'
                                       'ops.add(\n      "row_write(Cache(a!) cache) -> Tensor(a)", infer, "");\n')
        self.write("src/nn/fused/list.cpp", 'ops.add({"silu_mul(Tensor x) -> Tensor", "", f, {}});\n'
                                            'ops.add({.decl = "split(Tensor x) -> Tensor", .doc = ""});\n')
        self.write("src/ops/schema.h", "enum class OperandRole : uint8_t {\n  Tensor,  // any\n  Rows,    // of x\n};\n")
        self.write("src/ops/schema.cpp", 'TraitWord kTraitWords[] = {{"view", op_trait::kView},\n'
                                         '                           {"hint", op_trait::kHint}};\n')
        self.write("docs/add-an-op.md", "| `Tensor` | x |\n| `Rows` | x |\n| `view`, `hint` | x |\n")

    def errors(self, text, room="passes"):
        self.write(f"src/{room}/a.cpp", text)
        return check_ops.check(self.root)

    def test_declarations_are_found(self):
        self.assertEqual(check_ops.declared_ops(self.root), {"silu", "row_write", "silu_mul", "split"})

    def test_the_page_has_every_trait_and_role(self):
        for word, rows in (("hint", "| `Tensor` | `hint` |\n| `Rows` | x |\n| `view` | x |\n"),
                           ("Rows", "| `Tensor` | `Rows` |\n| `view`, `hint` | x |\n")):
            self.write("docs/add-an-op.md", rows)
            self.assertEqual(check_ops.check(self.root),
                             [f"docs/add-an-op.md: no table has `{word}` of src/ops/schema.h"])

    def test_what_bites(self):
        for line in ('if (n->op->name == "anything") return;', 'if (op.name != "x") return;',
                     'return "x" == n->op->name;', 'if (n->op->name.starts_with("linear")) return;',
                     'return use.user->op->operands[use.operand].name == "weight";',
                     '[](const OperandSchema& o) { return o.name == "starts"; }',
                     'const bool found = name == "silu";', 'return "silu_mul" != what;',
                     'if (schema.name == "x") return;  // why'):
            for room in check_ops.ROOMS:
                errors = self.errors(f"int f();\n{line}\n", room)
                self.assertEqual(len(errors), 1, (line, errors))
                self.assertIn(f"src/{room}/a.cpp:2: ", errors[0])
                self.write(f"src/{room}/a.cpp", "")

    def test_what_is_fine(self):
        for line in ('if (n->op == silu) return;', 'const OpSchema* silu = c.ops().find("silu");',
                     '// if (n->op->name == "silu")', 'if (o.name != "logits") continue;',
                     'return refused(n->op->name, "silu");', 'if (n->op->name == other.op->name) return;',
                     'if (n->op->has(op_trait::kView)) return;'):
            self.assertEqual(self.errors(line + "\n"), [], line)
        self.assertEqual(self.errors('if (n->op->name == "silu") return;\n', "graph"), [])

    def test_sizes_by_op(self):
        for room, name, fine in (("measurement", "op_cases.cpp", True), ("measurement", "op_bench.cpp", False),
                                 ("see", "op_cases.cpp", False)):
            self.write(f"src/{room}/{name}", 'if (op == "silu") return {rows(f)};\n')
            self.assertEqual(check_ops.check(self.root) == [], fine, (room, name))
            (self.root / f"src/{room}/{name}").unlink()
        self.write("src/measurement/op_cases.cpp", 'if (n->op->name == "silu") return {rows(f)};\n')
        self.assertEqual(len(check_ops.check(self.root)), 1)

    def test_the_repository(self):
        self.assertEqual(check_ops.check(ROOT), [])
        self.assertGreater(len(check_ops.declared_ops(ROOT)), 50)


class Names(Tree):
    def setUp(self):
        super().setUp()
        self.write("src/base/CMakeLists.txt", "house_hot(hot.cpp)\nhouse_library(base LIBS fmt::fmt APART ^alone)\n")
        self.define("src/base/a.cpp")

    def define(self, name, code="constexpr int64_t kMebi = 1;\n", where="reprise::base"):
        self.write(name, f"namespace {where} {{\nnamespace {{\n\n{code}\n}}  // namespace\n}}  // namespace {where}\n")

    def errors(self):
        return check_names.check(self.root)[0]

    def test_a_name_twice_in_a_target(self):
        for code in ("constexpr int64_t kMebi = 1;\n", "struct alignas(64) kMebi {\n};\n", "int kMebi[3] = {1,\n};\n"):
            with self.subTest(code=code):
                self.define("src/base/a.cpp", code)
                self.define("src/base/deep/b.cpp", code)
                errors = self.errors()
                self.assertEqual(len(errors), 1, errors)
                self.assertIn("src/base/a.cpp:4: kMebi is also defined", errors[0])
                self.assertIn("src/base/deep/b.cpp:4", errors[0])

    def test_functions_of_the_same_parameters(self):
        self.define("src/base/a.cpp", "int f(const char* text, int n) { return n; }\n")
        self.define("src/base/b.cpp", "int f(const char* other) {\n  return 1;\n}\n")
        self.assertEqual(self.errors(), [])
        self.define("src/base/b.cpp", "int f(const char* other,\n      int m) {\n  return 1;\n}\n")
        self.assertEqual(len(self.errors()), 1)

    def test_what_may_stand_twice(self):
        self.define("src/base/alone.cpp")
        self.define("src/base/hot.cpp")
        self.define("src/base/b.cpp", where="reprise::base::deep")
        self.write("src/ops/CMakeLists.txt", "house_library(ops DEPS base)\n")
        self.define("src/ops/a.cpp")
        self.write("src/base/c.cpp", "namespace reprise::base {\nint kMebi = 2;\n}  // namespace reprise::base\n")
        self.define("src/ops/b.cpp", "namespace fs = std::filesystem;\nusing Clock = std::chrono::steady_clock;\n")
        self.define("src/ops/c.cpp", "namespace fs = std::filesystem;\nusing Clock = std::chrono::steady_clock;\n")
        self.assertEqual(self.errors(), [])

    def test_programs_of_one_file_each(self):
        self.write("src/base/CMakeLists.txt", "add_executable(a a.cpp)\nadd_executable(b b.cpp)\n")
        self.define("src/base/b.cpp")
        self.assertEqual(self.errors(), [])

    def test_the_repository(self):
        errors, targets = check_names.check(ROOT)
        self.assertEqual(errors, [])
        self.assertGreater(targets, 50)


class Source(Tree):
    def errors(self, name, text):
        self.write(name, text)
        return check_source.check_file(self.root, name)

    def bad(self, text, words, name="src/base/a.cpp"):
        errors = self.errors(name, text)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(words, errors[0])

    def good(self, text, name="src/base/a.cpp"):
        self.assertEqual(self.errors(name, text), [])

    def test_switched_off(self):
        self.bad("#if 0\n", "switched off")
        self.bad("  if (" + "false) f();\n", "switched off")
        self.bad("  if constexpr (0) f();\n", "switched off")
        self.good("#if 0x10 > 1\n#endif\nif (false_alarm) f();\n")

    def test_commented_out_code(self):
        for code in ("x = y + 1;", "foo(bar, 3);", "return x;", "if (a) {", "for (int i = 0; i < n; ++i)", "} else {",
                     "int64_t rows;", "#include <vector>", "auto v = std::move(w);", "struct Foo {", "p->run();", "i++;",
                     "std::vector<int> v;", "void f(int a) const {"):
            with self.subTest(code=code):
                self.bad(f"// {code}\n", "commented-out code")

    def test_prose_is_not_code(self):
        self.good("""// A value of one device; never shared between threads;
// see base/status.h (the macros); a CHECK is for bugs.
// [tokens, heads, dim]
// Returns the number of rows; 0 means none.
// e(x) = 2^x, rounded to nearest even
// for each page, in one order
// NOLINTNEXTLINE
// ASSIGN_OR_RETURN(auto x, f()); declares x from a Result.
//   graph "toy" {
//     return hidden=%2
//   }
int x;  // x = 1;
const char* s = "// not a comment";
""")

    def test_examples_follow_a_colon(self):
        self.good("// Use it so:\n//   if (f()) {\n//     return g();\n//   }\n//\n//   h();\n// and no more.\n")
        self.bad("// Use it so:\n//   f();\n// Then:\n// words\n// g();\n", "a.cpp:5")

    def test_static_registration(self):
        self.bad("static const bool registered = register_op(x);\n", "static object")
        self.bad("REGISTER_KERNEL(add, f)\n", "static object")
        self.bad("static Registrar<Add> r(1);\n", "static object")
        self.good("static void register_cpu(Registries& r);\nStatus s = registry.register_kernel(k);\n")

    def test_layout(self):
        self.bad("int\tx;\n", "a tab")
        self.bad("int x; \n", "spaces at the end")
        self.bad("// " + "x" * 118 + "\n", "121 characters")
        self.bad("int x;", "no newline")
        self.good("x" * 200 + "\n", "docs/a.md")

    def test_headers(self):
        self.bad("// What it is.\n#include <vector>\n", "#pragma once", "src/base/a.h")
        self.good("// What it is.\n\n#pragma once\n", "src/base/a.h")
        self.bad("#pragma once\nusing namespace std;\n", "using namespace", "src/base/a.h")

    def test_machine_paths(self):
        for place in ("work", "root", "home/someone"):
            for name in ("docs/a.md", "tests/data/b.json", "tools/c.sh"):
                with self.subTest(place=place, name=name):
                    self.bad(f"see /{place}/x\n", "one machine", name)
        # Inside a longer path, or the beginning of a longer name, they are nobody's machine.
        root, work = "root", "work"
        self.good(f"a/{root}/b ../{work}/x ${{HOME}}/{root}/x /{work}space/x\n", "docs/a.md")


if __name__ == "__main__":
    unittest.main()
