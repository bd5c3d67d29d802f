#!/usr/bin/env python3
"""./dev new-op, new-model and new-backend: a skeleton that compiles, wired into the lists it belongs to.

Models and backends are copied from the smallest real ones (models/qwen2.cpp, backends/null), so that they cannot go
stale; an op's kernel and test from tools/dev/skeletons. Nothing is written unless all of it can be.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Refused(Exception):
    pass


class Change:
    """Files to be written, all of them or none."""

    def __init__(self):
        self.files = {}
        self.made = []

    def read(self, name):
        if name not in self.files:
            self.files[name] = (ROOT / name).read_text()
        return self.files[name]

    def create(self, name, text):
        if (ROOT / name).exists():
            raise Refused(f"{name} is there already")
        self.files[name] = text
        self.made.append(name)

    def edit(self, name, pattern, replacement):
        """Replaces the one place that matches; \\g<0> in the replacement is what was there."""
        text, count = re.subn(pattern, replacement, self.read(name), flags=re.M)
        if count != 1:
            raise Refused(f"{name}: expected one place that matches {pattern!r}, found {count}; wire it by hand")
        self.files[name] = text

    def write(self):
        # What was only read stays as it is.
        self.files = {n: t for n, t in self.files.items() if n in self.made or t != (ROOT / n).read_text()}
        for name, text in self.files.items():
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        code = [str(ROOT / name) for name in self.files if name.endswith((".h", ".cpp"))]
        subprocess.run(["clang-format-14", "-i", *code], check=True)


def camel(name):
    return "".join(word.capitalize() for word in name.split("_"))


def renamed(text, pairs):
    for pattern, replacement in pairs:
        text = re.sub(pattern, replacement, text)
    return text


def new_op(change, name):
    if re.search(rf'ops\.add\(\s*"{name}\(', change.read("src/ops/core.cpp")):
        raise Refused(f"the op {name} is there already")
    kernel, test = f"src/backends/cpu/kernels/{name}.cpp", f"tests/backends/{name}_test.cpp"
    for source, target in (("op_kernel.cpp", kernel), ("op_test.cpp", test)):
        text = (ROOT / "tools/dev/skeletons" / source).read_text()
        change.create(target, text.replace("skeleton_op", name).replace("SkeletonOp", camel(name)))
    schema = f'  ops.add("{name}(Tensor x) -> Tensor", infer_same, "x; write what it computes");\n'
    change.edit("src/ops/core.cpp", r"^}\n\n}  // namespace reprise\n\Z", schema + r"\g<0>")
    end = r"\n}  // namespace reprise::nn\n\Z"
    function = rf'inline Tensor {name}(Tensor x) {{ return call_op("{name}", {{x}}); }}'
    change.edit("src/nn/functional.h", end, rf"{function}\n\g<0>")
    change.edit(
        "src/ops/args/elements.cpp",
        r"^  \};\n  return rows;\n",
        rf'      op_row("{name}", &UnaryArgs::out, &UnaryArgs::x, constant_rows),\n\g<0>',
    )
    change.edit(
        "src/backends/cpu/kernels/table.h",
        r"#define REPRISE_CPU_PLAIN_KERNELS\(X\)[^\n]*\\\n",
        rf"\g<0>  X({name}) \\\n",
    )
    return f"""next, with docs/add-an-op.md:
  1. say what it is: the ops.add line of {name} at the end of src/ops/core.cpp (operands, shape function, text)
  2. where it reads more than x: a struct of its own instead of UnaryArgs, in src/ops/args, for all devices
  3. compute it: {kernel}
  4. prove it: {test}, then ./dev test backends.{camel(name)}"""


def new_model(change, name):
    k = f"k{camel(name)}"
    text = renamed(
        change.read("src/models/qwen2.cpp"),
        [
            (r"\A//[^\n]*\n(//[^\n]*\n)*", f"// {camel(name)}: what sets it apart from the other decoders.\n"),
            (r"kQwen2\b", k),
            (r"Qwen2(ForCausalLM|Model)", rf"{camel(name)}\1"),
            (r'"qwen2"', f'"{name}"'),
            (r"models::qwen2\b", f"models::{name}"),
        ],
    )
    change.create(f"src/models/{name}.cpp", text)
    last = r"(#define REPRISE_MODELS\(X\)(?:[^\n]*\\\n)+  X\(\w+, k\w+\))\n"
    change.edit("src/models/list.h", last, rf"\1 \\\n  X({name}, {k})\n")
    return f"""next, with docs/add-a-model.md:
  1. write src/models/{name}.cpp (now it is Qwen2's): its names, sizes and fields in config.json, its forward function
  2. add a tiny checkpoint to tools/golden/small_families.py and its name to tests/support/tiny_models.h
  3. prove it: ./dev test models"""


SUBJECT = """template <typename Op>
struct {kind}Toy {{
  static OpaqueKernel get() {{ return {name}::opaque(null_toy<Op>); }}
}};

Subject {name}_subject() {{
  DeviceOptions options;
  options.kind = DeviceKind::{kind};
  return platform_subject("{name}", options, toys<{kind}Toy>());
}}

"""


def new_backend(change, name):
    kind = camel(name)
    if re.search(rf"DeviceKind : uint8_t \{{[^}}]*\b{kind}\b", change.read("src/device/device.h")):
        raise Refused(f"the device kind {kind} is there already")
    pairs = [
        (r"\bNull(?=[A-Z])", kind),
        (r"DeviceKind::Null\b", f"DeviceKind::{kind}"),
        (r"reprise::null\b", f"reprise::{name}"),
        (r"backends/null/null_", f"backends/{name}/{name}_"),
        (r"\b(make|register)_null\b", rf"\1_{name}"),
        (r"\bmake_null_device\b", f"make_{name}_device"),
        (r'"null', f'"{name}'),
    ]
    for source in sorted((ROOT / "src/backends/null").iterdir()):
        text = renamed(source.read_text(), pairs)
        if source.suffix == ".h":
            text = re.sub(r"\A(//[^\n]*\n)+", f"// {kind}Device: what it is, who owns it, which thread may touch it.\n", text)
        change.create(f"src/backends/{name}/{source.name.replace('null_', name + '_')}", text)
    change.edit("src/device/device.h", r"(enum class DeviceKind : uint8_t \{[^}]*), Null \};", rf"\1, {kind}, Null }};")
    device = "src/device/device.cpp"
    change.edit(device, r'\{DeviceKind::Null, "null"\}', rf'{{DeviceKind::{kind}, "{name}"}}, \g<0>')
    everyone = "src/backends/all.cpp"
    change.edit(everyone, r'^#include "backends/null/null_device.h"\n', rf'#include "backends/{name}/{name}_device.h"\n\g<0>')
    case = re.search(r"^    case DeviceKind::Null: \{\n.*?^    \}\n", change.read(everyone), flags=re.M | re.S)
    if not case:
        raise Refused(f"{everyone}: no case of DeviceKind::Null to copy; wire it by hand")
    mine = renamed(case.group(0), pairs + [(r"\bnull::", f"{name}::")])
    change.files[everyone] = change.read(everyone).replace(case.group(0), mine + case.group(0))
    change.edit("src/settings/model_rows.cpp", r'(\{"auto", "cpu", [^}]*), "null"\}', rf'\1, "{name}", "null"}}')
    subjects = "tests/device/conformance.cpp"
    change.edit(subjects, r'^#include "backends/all.h"\n', rf'\g<0>#include "backends/{name}/{name}_device.h"\n')
    change.edit(subjects, r"^Subject cuda_subject\(", SUBJECT.format(kind=kind, name=name) + r"\g<0>")
    change.edit(subjects, r"(static const std::vector<Subject> all\{\s*)", rf"\1{name}_subject(), ")
    return f"""next, with docs/add-a-device.md:
  1. make it real: src/backends/{name}/ (now it accepts every launch and computes nothing)
  2. register its kernels there; ops without one are expanded into smaller ops, or refused by name
  3. prove it: ./dev test device, then reprise graph verify --device {name}
  4. write the pages that list the settings again: ./dev golden --accept GoldenPage"""


KINDS = {"op": new_op, "model": new_model, "backend": new_backend}


def main():
    kind, name = sys.argv[1:]
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        print(f"./dev new-{kind}: \"{name}\" is not a name like rms_norm: small letters, digits and single underscores",
              file=sys.stderr)
        return 2
    change = Change()
    try:
        steps = KINDS[kind](change, name)
    except Refused as why:
        print(f"./dev new-{kind}: {why}", file=sys.stderr)
        return 1
    change.write()
    for file in sorted(change.files):
        print(f"{'new    ' if file in change.made else 'changed'} {file}")
    print(steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
