#!/usr/bin/env python3
"""Writes the files of a package that the program makes of itself: manual pages, completions of shells, and the file of
settings to begin with.

  tools/package_files.py build/release/bin/reprise FOLDER
"""
import pathlib
import re
import subprocess
import sys

COMPLETIONS = {
    "bash": "share/bash-completion/completions/reprise",
    "zsh": "share/zsh/site-functions/_reprise",
    "fish": "share/fish/vendor_completions.d/reprise.fish",
}


def commands(page):
    """The commands that a manual page lists, each as its words."""
    part = page.split(".SH COMMANDS\n")[1].split("\n.SH ")[0] if ".SH COMMANDS\n" in page else ""
    for line in re.findall(r"^\\fBreprise (.*)\\fR$", part, re.M):
        yield line.replace("\\-", "-").split()


def files(binary):
    """{place: text}"""
    def output(*words):
        return subprocess.run([binary, *words], capture_output=True, text=True, check=True).stdout

    out = {"etc/reprise/server.json": output("help", "settings", "--config")}
    for shell, place in COMPLETIONS.items():
        out[place] = output("completion", shell)
    out["share/man/man7/reprise-settings.7"] = output("help", "settings", "--man")
    waiting = [[]]
    while waiting:
        words = waiting.pop()
        page = output("help", *words, "--man")
        out[f"share/man/man1/{'-'.join(['reprise', *words])}.1"] = page
        waiting += commands(page)
    return out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    for place, text in files(pathlib.Path(sys.argv[1]).resolve()).items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)


if __name__ == "__main__":
    main()
