#!/usr/bin/env python3
"""Makes one object of many, in which the functions of a header alone are global.

    partial_link.py --header FILE --ld FILE --objcopy FILE --output FILE OBJECT|ARCHIVE...

A program that links it may have another version of each library inside (fmt, JSON, Boost): their symbols are local.
Section groups are dissolved, so that the linker does not take a function of the program for one of ours, or ours for
one of the program's.
"""
import argparse
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

# Of ELF (elf.h): the sections of symbols, and how a symbol is bound.
SHT_SYMTAB = 2
STB_WEAK, STB_GNU_UNIQUE = 2, 10


def functions_of(header):
    return sorted(set(re.findall(r"^REPRISE_API [^;]*?\b(reprise_\w+)\(", header, re.M)))


def without_unique(data):
    """The object with weak symbols in place of unique ones, which objcopy does not make local.

    A unique symbol is one for the whole process, whichever library has it: what the archive must not share.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("partial_link.py: an ELF object of 64 bits, least byte first, is expected")
    out = bytearray(data)
    (sections,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    if count == 0:  # more than fit there: the first section has the number
        (count,) = struct.unpack_from("<Q", data, sections + 0x20)
    for i in range(count):
        _, kind, _, _, offset, length, _, _, _, entry = struct.unpack_from("<IIQQQQIIQQ", data, sections + i * size)
        if kind != SHT_SYMTAB:
            continue
        for at in range(offset + 4, offset + length, entry):
            if data[at] >> 4 == STB_GNU_UNIQUE:
                out[at] = STB_WEAK << 4 | data[at] & 15
    return bytes(out)


def main():
    parser = argparse.ArgumentParser()
    for name in ("header", "ld", "objcopy", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("parts", nargs="+")
    options = parser.parse_args()
    names = functions_of(pathlib.Path(options.header).read_text())
    if not names:
        raise SystemExit(f"partial_link.py: {options.header} declares no function")
    objects = [p for p in options.parts if not p.endswith(".a")]
    archives = [p for p in options.parts if p.endswith(".a")]
    with tempfile.TemporaryDirectory() as folder:
        linked, keep = pathlib.Path(folder) / "linked.o", pathlib.Path(folder) / "keep"
        subprocess.run([options.ld, "-r", "--force-group-allocation", "-o", linked, *objects, "--start-group", *archives,
                        "--end-group"], check=True)
        linked.write_bytes(without_unique(linked.read_bytes()))
        keep.write_text("".join(f"{name}\n" for name in names))
        subprocess.run([options.objcopy, f"--keep-global-symbols={keep}", "--strip-unneeded", linked, options.output],
                       check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
