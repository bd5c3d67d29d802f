#!/usr/bin/env python3
"""Checks the pages for readers: README.md, CONTRIBUTING.md, CHANGELOG.md and docs/*.md, where they exist.

1. No line is longer than 120 columns: prose, tables and fenced blocks alike.
2. Every relative link leads to a file of the repository, and every #anchor to a heading, by GitHub's rules.
3. Every command line shown has a command and flags that exist. Command lines are the lines of fenced blocks, and code
   in backquotes, that start with `reprise`, `./dev`, `tools/NAME.py` or a path to one of these (behind `$ `, variables
   or `./dev bisect --`). `reprise` is asked itself, by `--help-all` or `--help`; without a binary that part is skipped
   and the check says so. Words in capitals and words with `...` are placeholders.

4. A comment in front of every fenced block with commands says whether it is run: `run`, `serve`, `file` or `not run`
   with the reason (tests/tools/doc_commands_test.py, which runs them). For a whole page that none is run:
   `<!-- commands of this page are not run: REASON -->`.
"""

import argparse
import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys

import models_page

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md")
COLUMNS = 120
SHELL = ("", "text", "txt", "sh", "bash", "shell", "console", "shell-session")
FENCE = re.compile(r"^ *(```+|~~~+) *([\w+-]*)")
LINK = re.compile(r"\[[^\[\]]*\]\(\s*<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s+(\S+)", re.M)
CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
MARK = re.compile(r"<!-- (?:(?:run|serve|file)\b|not run: *\S)")
PAGE_MARK = re.compile(r"^<!-- commands of this page are not run: *\S.*-->$", re.M)
COMMAND = re.compile(r"^\s*(?:\$ |(?:\w+=\S+ )*(?:reprise|\./dev|curl|tools/\S+\.py|cmake|tar|export|source|pip|python3?) )")
PROGRAM = re.compile(r"^reprise$|/reprise$|/dev$|(^|/)tools/[\w/]+(?<!_test)\.py$")
FLAG_LINE = re.compile(r"^ {2,8}(-[-\w]+(?:, ?-[-\w]+)*)(?: +\{([^}]*)\})?")


def pages_of(root):
    """The pages that exist, in a fixed order."""
    return [path for pattern in PAGES for path in sorted(root.glob(pattern))]


class Page:
    """One page: its lines, which of them are fenced and in what language, and the anchors of its headings.

    Links and code in backquotes may go on in the next line, so they are looked for in `paragraphs`.
    """

    def __init__(self, path):
        self.lines = path.read_text(encoding="utf-8").split("\n")
        self.fenced = []  # None outside of a block, "fence" for its borders, else the language
        self.anchors = set()
        fence, language, seen = None, "", {}
        for line in self.lines:
            border = FENCE.match(line)
            if fence is None and border:
                fence, language = border[1], border[2].lower()
                self.fenced.append("fence")
            elif fence is not None and border and border[1].startswith(fence) and not line.strip(" `~"):
                fence = None
                self.fenced.append("fence")
            else:
                self.fenced.append(None if fence is None else "text" if language == "" else language)
            if self.fenced[-1] is None:
                heading = re.match(r"#{1,6} +(.*?)(?: +#+)?$", line)
                if heading:
                    name = slug(heading[1])
                    self.anchors.add(name if name not in seen else f"{name}-{seen[name]}")
                    seen[name] = seen.get(name, 0) + 1
                self.anchors.update(re.findall(r"<\w+ (?:id|name)=\"([^\"]+)\"", line))
        prose = "\n".join("" if fenced else line for line, fenced in zip(self.lines, self.fenced))
        self.paragraphs = [(prose.count("\n", 0, part.start()) + 1, part[0])
                           for part in re.finditer(r"\S(?:.|\n(?!\s*\n))*", prose)]


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"(?<!\w)[*_]{1,3}(?=\S)(.+?)(?<=\S)[*_]{1,3}(?!\w)", r"\1", text)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def check_columns(name, page):
    return [f"{name}:{n}: {len(line)} columns, the limit is {COLUMNS}"
            for n, line in enumerate(page.lines, 1) if len(line) > COLUMNS]


def blank(match):
    """As many characters that mean nothing, and the same lines."""
    return re.sub(r"[^\n]", "~", match[0])


def check_links(root, name, page, load):
    errors = []
    for first, paragraph in page.paragraphs:
        plain = CODE.sub(blank, paragraph)
        without_images = re.sub("!" + LINK.pattern, blank, plain)  # a link may stand around an image
        found = [*LINK.finditer(plain), *LINK.finditer(without_images), *REFERENCE.finditer(plain)]
        for start, target in sorted({match.start(1): match[1] for match in found}.items()):
            if re.match(r"[a-z][a-z0-9+.-]*:|//", target, re.I):
                continue
            at = f"{name}:{first + plain.count(chr(10), 0, start)}"
            file, _, anchor = target.partition("#")
            path = (root / name).parent / file if file else root / name
            if file.startswith("/") or not path.exists():
                errors.append(f"{at}: there is no {file}")
            elif root.resolve() not in (path.resolve(), *path.resolve().parents):
                errors.append(f"{at}: {file} is outside of the repository")
            elif anchor and path.suffix == ".md" and anchor not in load(path.resolve()).anchors:
                errors.append(f"{at}: {file or 'this page'} has no heading #{anchor}")
    return errors


def words_of(text):
    """The words of a command line up to a pipe, a redirection or a comment; None when quotes are open."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words = []
    try:
        for word in lexer:
            if word and set(word) <= set("|&;<>()"):
                break
            words.append(word)
    except ValueError:
        return None
    return words


def command_lines(page):
    """(line number, words) of every command line on a page."""
    found, number = [], 0
    for first, paragraph in page.paragraphs:
        found += [(first + paragraph.count("\n", 0, code.start()), words_of(" ".join(code[2].split())))
                  for code in CODE.finditer(paragraph)]
    while number < len(page.lines):
        first, line, language = number + 1, page.lines[number], page.fenced[number]
        number += 1
        if language in SHELL:
            line = re.sub(r"^\s*\$ ", "", line)
            while line.endswith("\\") and number < len(page.lines) and page.fenced[number] == language:
                line = line[:-1] + " " + page.lines[number].strip()
                number += 1
            found.append((first, words_of(line)))
    commands = []
    for at, words in found:
        words = words or []
        while words and re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", words[0]):
            words = words[1:]
        if words[:1] == ["exec"]:
            words = words[1:]
        commands.append((at, words))
        if words[1:3] == ["bisect", "--"]:
            commands.append((at, words[3:]))
    return [(at, words) for at, words in sorted(commands) if words and PROGRAM.search(words[0])]


def check_marks(name, page):
    """Blocks of commands that nothing says whether they are run."""
    if PAGE_MARK.search("\n".join(page.lines)):
        return []
    errors, first = [], None
    for number, fenced in enumerate(page.fenced):
        if fenced != "fence":
            if first is not None and fenced in SHELL and COMMAND.search(page.lines[number]):
                before = "\n".join(page.lines[:first]).rstrip()
                if not (before.endswith("-->") and MARK.match(before, before.rindex("<!--"))):
                    errors.append(f"{name}:{first + 1}: nothing says whether this block of commands is run")
                first = None
        elif first is None and (number == 0 or page.fenced[number - 1] in (None, "fence")):
            first = number
        else:
            first = None
    return errors


def is_placeholder(word):
    return "..." in word or word.startswith("[") or re.fullmatch(r"[A-Z][A-Z_]*\d*", word) is not None


class Program:
    """What `reprise` answers about its commands and flags; each command is asked once."""

    def __init__(self, binary):
        self.binary = binary

    @functools.lru_cache(maxsize=None)
    def run(self, *arguments):
        done = subprocess.run([self.binary, *arguments], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout + done.stderr

    @functools.lru_cache(maxsize=None)
    def help(self, *path):
        """(subcommands, {flag: allowed values or None}) of one command."""
        status, text = self.run(*path, "--help-all")
        if status != 0:
            status, text = self.run(*path, "--help")
        if status != 0:
            raise RuntimeError(f"{self.binary} {' '.join(path)} --help fails: {text.strip()[:200]}")
        part = re.search(r"^(?:sub)?commands:\n((?:.*\n)*?)(?:\n|\Z)", text, re.M | re.I)
        commands = re.findall(r"^ {2,8}([a-z][\w-]*)\b", part[1], re.M) if part else []
        flags = {}
        for line in text.split("\n"):
            if found := FLAG_LINE.match(line):
                values = [v.strip() for v in found[2].split(",")] if found[2] else None
                flags |= {flag.strip(): values for flag in found[1].split(",")}
        return commands, flags

    @functools.lru_cache(maxsize=None)
    def accepts(self, path, flag):
        """Whether a flag that the help does not list is accepted all the same: the unknown one behind it is named."""
        return f"{flag} is not a flag" not in self.run(*path, flag, "--not-a-flag")[1]

    def errors_of(self, words):
        path = []
        words = words[1:]
        while words and not words[0].startswith("-") and not is_placeholder(words[0]):
            if path == ["help"] and words[0] == "settings":  # a page of its own
                path, words = ["help", "settings"], words[1:]
                break
            commands = self.help(*path)[0]
            if not commands:
                break
            if any(one not in commands for one in words[0].split("|")):
                return [f"\"{words[0]}\" is not a command of \"{' '.join(['reprise', *path])}\""]
            path.append(words[0].split("|")[0])
            words = words[1:]
        commands, flags = self.help(*path)
        if commands and words and is_placeholder(words[0]):
            return []
        errors = []
        for index, word in enumerate(words):
            flag, has_value, value = word.partition("=")
            if not re.fullmatch(r"-[A-Za-z]|--[a-z][\w-]*", flag):
                continue
            if flag not in flags and (not path and flag in ("-V", "--version") or self.accepts(tuple(path), flag)):
                continue
            if flag not in flags:
                errors.append(f"\"{' '.join(['reprise', *path])}\" has no flag {flag}")
                continue
            if not has_value and index + 1 < len(words):
                value = words[index + 1]
            if flags[flag] and value and not value.startswith("-") and not is_placeholder(value):
                if value not in flags[flag] and not re.search(r"[|,]", value):
                    errors.append(f"{flag} has no value \"{value}\"; there are: {', '.join(flags[flag])}")
        return errors


def errors_of_dev(root, words):
    """./dev VERB, and the names of `./dev check`."""
    if len(words) < 2 or is_placeholder(words[1]):
        return []
    text = (root / "dev").read_text(encoding="utf-8")
    verbs = set(re.findall(r"^do_([\w-]+)\(\)", text, re.M)) | {"help"}
    if words[1] not in verbs:
        return [f"./dev has no verb \"{words[1]}\""]
    names = " ".join(re.findall(r"^(?:all|named)_checks='([^']*)'", text, re.M)).split()
    if words[1] == "check" and names:
        return [f"./dev check has no \"{w}\"" for w in words[2:] if w not in names and not is_placeholder(w)]
    return []


def errors_of_script(root, words):
    """tools/NAME.py and its flags, as its text declares them."""
    script = root / words[0][words[0].index("tools/"):]
    if not script.is_file():
        return [f"there is no {words[0]}"]
    known = set(re.findall(r"\"(--[\w-]+)\"", script.read_text(encoding="utf-8"))) | {"--help"}
    flags = [w.partition("=")[0] for w in words[1:] if re.match(r"--[a-z]", w)]
    return [f"{words[0]} has no flag {flag}" for flag in flags if flag not in known]


def check(root, binary=None):
    """Returns the errors of all pages; without a binary, commands of `reprise` are not looked at."""
    load = functools.lru_cache(maxsize=None)(Page)
    program = Program(str(binary)) if binary else None
    errors = []
    for path in pages_of(root):
        name = str(path.relative_to(root))
        page = load(path.resolve())
        errors += check_columns(name, page) + check_links(root, name, page, load) + check_marks(name, page)
        for at, words in command_lines(page):
            if words[0].endswith("/dev"):
                found = errors_of_dev(root, words)
            elif words[0].endswith(".py"):
                found = errors_of_script(root, words)
            else:
                found = program.errors_of(words) if program else []
            errors += [f"{name}:{at}: {error}" for error in found]
    if (root / "src/models/list.h").is_file():
        try:
            for file, make in ((models_page.PAGE, models_page.page), (models_page.FACTS, models_page.facts)):
                written = make(root) == (root / file).read_text(encoding="utf-8")
                errors += [] if written else [f"{file} is not what tools/models_page.py --write writes"]
        except (OSError, SystemExit) as error:
            errors.append(f"{models_page.PAGE}: {error}")
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--binary", type=pathlib.Path, help="default: $REPRISE_BINARY, else build/release/bin/reprise")
    args = parser.parse_args()
    binary = args.binary or pathlib.Path(os.environ.get("REPRISE_BINARY", args.root / "build/release/bin/reprise"))
    if not os.access(binary, os.X_OK):
        print(f"note: commands of reprise are not checked, as there is no {binary}; ./dev build makes it")
        binary = None
    errors = check(args.root, binary)
    print("\n".join(errors) if errors else f"{len(pages_of(args.root))} pages")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
