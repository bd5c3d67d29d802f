"""The checks of ./dev check fail when they should, and only then."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import check_layers  # noqa: E402
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

    def test_cmake_and_layers_disagree(self):
        self.only("src/ops/CMakeLists.txt", "house_library(ops DEPS base device)\n", "DEPS are [base device]")

    def test_folder_without_target(self):
        self.only("src/ops/CMakeLists.txt", "# nothing\n", "no house_library(ops")

    def test_folder_without_line(self):
        errors = self.errors("src/extra/a.h", "")
        self.assertEqual(errors, ["src/extra: no line in tools/layers.txt"])

    def test_cycle(self):
        self.assertIn("no line above", self.errors("tools/layers.txt", "base: device\ndevice: base\n")[0])

    def test_the_repository_has_fifteen_layers(self):
        layers, errors = check_layers.read_layers(ROOT / "tools" / "layers.txt")
        self.assertEqual(errors, [])
        self.assertEqual(len(layers), 15)
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
    def setUp(self):
        super().setUp()
        self.write("tests/base/a_test.cpp", "TEST(One, Two) {}\nTEST_P(Three,\n       Four) {}\n// TEST(No, No)\n")
        self.write("tests/tools/checks_test.py", "class Five:\n    def test_six(self):\n        pass\n")
        self.write("docs/figures.md", "")
        self.rows = {f"F{n:02}": f"| F{n:02} | a | b | `base/a_test One.Two` |" for n in check_scoreboard.IDS}

    def errors(self, **rows):
        text = "\n".join({**self.rows, **rows}.values())
        self.write("docs/scoreboard.md", f"| ID | feature | here | tests |\n|---|---|---|---|\n{text}\n")
        return check_scoreboard.check_scoreboard(self.root)

    def only(self, words, **rows):
        errors = self.errors(**rows)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(words, errors[0])

    def test_what_is_fine(self):
        self.assertEqual(self.errors(), [])
        fine = "| F02 | a | b | `base/a_test Three.Four`, `tools/checks_test.py Five.test_six` |"
        self.assertEqual(self.errors(F02=fine), [])
        self.assertEqual(self.errors(F02="| F02 | a | b | measured: [here](figures.md#x) |"), [])
        self.assertEqual(self.errors(F18="| F18 | a | missing: an error says so | |"), [])

    def test_what_is_not(self):
        self.only("no test One.Three", F02="| F02 | a | b | `base/a_test One.Three` |")
        self.only("no test No.No", F02="| F02 | a | b | `base/a_test No.No` |")
        self.only("no test Five.six", F02="| F02 | a | b | `tools/checks_test.py Five.six` |")
        self.only("no tests/base/b_test.cpp", F02="| F02 | a | b | `base/b_test One.Two` |")
        self.only("no docs/none.md", F02="| F02 | a | b | measured: [here](none.md) |")
        self.only("F02 names no test", F02="| F02 | a | b | One.Two |")
        self.only("F02 needs four columns", F02="| F02 | a | `base/a_test One.Two` |")
        self.only("F02 is missing", F02="")
        for one in ("F01", "F18", "F19", "F56", "F65", "F68"):
            self.only(f"{one} is missing", **{one: ""})
        self.only("F69 is not asked for", F69="| F69 | a | b | `base/a_test One.Two` |")
        self.only("F18 names no test", F18="| F18 | a | missing: | |")
        self.only("F18 names no test", F18="| F18 | a | is missing: an error says so | |")
        self.only("F02 does not say what is there", F02="| F02 | a | | `base/a_test One.Two` |")
        self.only("F03 is out of order", F02=self.rows["F03"], F03=self.rows["F02"])
        self.only("F02 is there twice", again=self.rows["F02"])

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


class Coverage(Tree):
    def errors(self, *, key="`base/a_test One.Two`", cell="A", rule="`base/a_test One.Two`", columns=""):
        self.write("tests/base/a_test.cpp", "TEST(One, Two) {}\n")
        self.write("docs/ascend-coverage.md", "\n".join([
            "| key | test | shows |", "|---|---|---|", f"| A | {key} | b |", "| B | `base/a_test One.Two` | c |", "",
            "| model | eager | whole |", "|---|---|---|", f"| one | {cell} | A, B |{columns}", "",
            "| rule | test |", "|---|---|", f"| never | {rule} |", ""]))
        return check_scoreboard.check_coverage(self.root)

    def test_what_is_fine(self):
        self.assertEqual(self.errors(), [])
        self.assertEqual(self.errors(cell="no: it cannot"), [])

    def test_what_is_not(self):
        for words, changes in {
            "has no test One.Three": {"key": "`base/a_test One.Three`"},
            "the key A names no test": {"key": "One.Two"},
            '"" is neither': {"cell": ""},
            '"C" is neither': {"cell": "C"},
            '"no" is neither': {"cell": "no"},
            "never names no test": {"rule": "somewhere"},
            "4 columns, the table has 3": {"columns": " more |"},
        }.items():
            errors = self.errors(**changes)
            self.assertEqual(len(errors), 1, errors)
            self.assertIn(words, errors[0])

    def test_missing(self):
        self.assertEqual(check_scoreboard.check_coverage(self.root), ["docs/ascend-coverage.md: is missing"])


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
