"""The program `reprise` of the wheel."""
import os
import sys

from .library import FOLDER


def main():
    program = FOLDER / "_bin" / "reprise"
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
