#!/usr/bin/env python3
"""Compiles the CUDA kernels for every GPU they are meant for, and reads what ptxas says of each.

A build has code for sm_80 and sm_90, and PTX for what comes after (cmake/cuda.cmake). This compiles for newer and
smaller GPUs too, so that none is promised that the sources do not compile for. A kernel that spills registers, or keeps
arrays in memory because their indices are not known (a stack frame), is an error. No GPU is needed. Without nvcc there
is nothing to check, which a note says.

  tools/check_cuda.py [--arch 80,89,90a,120] [--quick] [--seconds N] [FILE.cu...]

--quick asks only whether all compiles, without optimisation and thus without a word on registers. --seconds ends the
check after that time and says what was not compiled.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

KERNELS = "src/backends/cuda/kernels"
ARCHITECTURES = "80,89,90a,120"
# Those of cmake/house.cmake and src/backends/CMakeLists.txt.
FLAGS = ["-std=c++20", "--fmad=false", "-Xcompiler=-ffp-contract=off", "--expt-relaxed-constexpr", "-Isrc"]
# Bytes a thread that kernels may spill, by a part of their name. Attention of many rows has all 255 registers that a
# thread can have: a row's state, a tile's scores and the operands of products take some bytes more.
MAY_SPILL = {"Attention": 72}
WITHOUT_KERNELS = {"launch_parts.cu"}
# Kernels that may have a stack frame, by a part of their name: why.
MAY_HAVE_FRAMES = {"MergeDraws": "one thread walks the lists of all ranks and keeps its place in each"}


def find_nvcc() -> str | None:
    """As cmake/cuda.cmake looks for it."""
    for at in (os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if at and os.access(at, os.X_OK):
            return at
    return None


def short_name(kernel: str) -> str:
    """run_kernel<...> without the namespace that all kernels are in."""
    shown = subprocess.run(["c++filt", kernel], capture_output=True, text=True, check=True).stdout.strip()
    inner = re.search(r"run_kernel<(.*)>\(", shown)
    return (inner.group(1) if inner else shown).replace("reprise::cuda::", "")


def read_ptxas(text: str) -> list[dict]:
    """Kernels with their registers, stack frames and spills, in bytes, from what ptxas -v prints."""
    kernels: list[dict] = []
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '(\S+)'", line):
            kernels.append({"kernel": m.group(1), "registers": 0, "frame": 0, "spilled": 0})
        elif kernels and (m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line)):
            kernels[-1].update(frame=int(m.group(1)), spilled=int(m.group(2)))
        elif kernels and (m := re.search(r"Used (\d+) registers", line)):
            kernels[-1]["registers"] = int(m.group(1))
    return kernels


def faults_of(kernels: list[dict]) -> list[str]:
    faults = []
    for k in kernels:
        if k["spilled"] > max((most for part, most in MAY_SPILL.items() if part in k["kernel"]), default=0):
            faults.append(f"{short_name(k['kernel'])}: {k['spilled']} bytes of registers are spilled")
        elif k["frame"] > -(-k["spilled"] // 16) * 16 and not any(part in k["kernel"] for part in MAY_HAVE_FRAMES):
            faults.append(f"{short_name(k['kernel'])}: a stack frame of {k['frame']} bytes")
    return faults


def compile_one(nvcc: str, source: pathlib.Path, arch: str, quick: bool, seconds: float | None) -> dict:
    optimise = ["-Xcicc=-O0", "-Xptxas=-O0"] if quick else ["-O3", "-Xptxas=-v"]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *FLAGS, *optimise, f"-arch=sm_{arch}", "-cubin", "-o", f"{folder}/out.cubin", str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"unfinished": True}
    result = {"seconds": time.monotonic() - begin, "kernels": read_ptxas(done.stderr), "faults": []}
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        result["faults"] = [f"does not compile: {words[0] if words else f'status {done.returncode}'}"]
    elif not quick and not result["kernels"] and source.name not in WITHOUT_KERNELS:
        result["faults"] = ["ptxas told of no kernel"]
    elif not quick:
        result["faults"] = faults_of(result["kernels"])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--arch", default=ARCHITECTURES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    args = parser.parse_args()
    nvcc = find_nvcc()
    if not nvcc:
        print("note: nvcc was not found (CUDACXX, PATH, /usr/local/cuda/bin): no CUDA kernel was compiled")
        return 0
    files = args.files or sorted(pathlib.Path(KERNELS).glob("*.cu"))
    tasks = [(f, arch) for arch in args.arch.split(",") for f in files]
    end = time.monotonic() + args.seconds if args.seconds else None

    def run(task):
        left = end - time.monotonic() if end else None
        if left is not None and left <= 0:
            return {"unfinished": True}
        return compile_one(nvcc, *task, args.quick, left)

    faults, unfinished = [], []
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("REPRISE_JOBS", os.cpu_count() or 1))) as pool:
        running = {pool.submit(run, task): task for task in tasks}
        for done in concurrent.futures.as_completed(running):
            (source, arch), result = running[done], done.result()
            if result.get("unfinished"):
                unfinished.append(f"sm_{arch} {source.name}")
                continue
            kernels = result["kernels"]
            most = max((k["registers"] for k in kernels), default=0)
            found = f"{len(kernels):4} kernels, {most:3} registers at most" if kernels else ""
            print(f"sm_{arch:4} {source.name:20} {result['seconds']:6.1f} s  {found}".rstrip(), flush=True)
            faults += [f"{source}: sm_{arch}: {fault}" for fault in result["faults"]]
    if unfinished:
        print(f"note: {len(unfinished)} of {len(tasks)} not compiled in {args.seconds:.0f} s: {', '.join(unfinished)}")
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
