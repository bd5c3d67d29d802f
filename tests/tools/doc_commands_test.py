"""Runs the marked examples of README.md, CONTRIBUTING.md and docs/*.md and compares what they print with the page.

An HTML comment in front of a fenced block marks it. These forms exist:

  <!-- run -->                                   runs the block's command lines, those that start with `$ `. The lines
                                                 below a command are what it prints. Without any `$ ` each line of the
                                                 block is a command, and only its exit status counts.
  <!-- run: exit=1 M=tests/data/models/NAME -->  expects exit status 1, and puts a path in the place of the word M
  <!-- run: wrapped=yes -->                      the lines below a command are one line that is too long for the page
  <!-- run: $ reprise generate ... -->           runs this command: the block shows a part of what it prints
  <!-- file: residual.pass -->                   writes the block into a file of that name for the examples below it
  <!-- serve -->                                 the block is a command that serves: it runs, on a free port, while the
                                                 examples below it do; with words as `run` has them
  <!-- not run: it needs a network -->           nothing is run, and why

A comment may have several lines. The examples of one page run in order and share a temporary folder. It has links to
the folders of the repository and to `./dev`, so that paths such as tests/data/models work. `reprise` is the built binary
there, and $REPRISE_CACHE is a folder of its own that holds the default model. Standard output and standard error are
compared as one text. In a command that a comment gives, lines of the block that begin with `$ ` or `> ` are what one
types, and no output. Servers are shared by the pages; in commands 127.0.0.1:30000 is the last one that was started.

Shapes are compared, not figures: numbers, paths and runs of spaces are equal to others of their kind, and empty lines
do not count. A line `...` on the page stands for any lines, `...` inside a line for any text. Everything else must
agree, line by line, and the exit status must be 0 or the expected one. Examples that name the default model are skipped
where it is not in the cache, except in CI. ($REPRISE_BINARY names another binary than build/release/bin/reprise.)
"""

import difflib
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("REPRISE_BINARY", ROOT / "build/release/bin/reprise"))
CACHE = pathlib.Path(os.environ.get("REPRISE_CACHE", pathlib.Path.home() / ".cache/reprise"))
MARKED = re.compile(r"^( *)<!-- (run|serve|file|not run)\b:?((?:(?!-->).)*)-->\s*^ *```[\w-]*\n(.*?)^ *```$", re.M | re.S)
LINKED = ("dev", "examples", "src", "tests", "tools")
SECONDS = 60


class Example:
    """One marked block: commands with the lines that each shows, and what the comment says of them."""

    def __init__(self, line, kind, indent, words, block):
        self.line, self.kind = line, kind
        self.block = "".join(row[len(indent):] if row.startswith(indent) else row for row in block.splitlines(True))
        words, _, given = " ".join(words.split()).partition("$ ")
        self.name = words.strip()
        settings = dict(word.split("=", 1) for word in words.split() if "=" in word)
        self.status = int(settings.pop("exit", 0))
        wrapped = settings.pop("wrapped", None)
        self.settings = settings
        self.commands = []  # [command, lines or None]
        if kind == "run" and given:
            printed = [row for row in self.block.split("\n") if not row.startswith(("$ ", "> "))]
            self.commands = [[given, ["...", *printed, "..."]]]
        elif kind == "serve" and given:
            self.commands = [[given, None]]
        elif kind in ("run", "serve"):
            shown = re.search(r"^\$ ", self.block, re.M)
            for row in re.sub(r"\\\n\s*", "", self.block).splitlines():
                if row.startswith("$ ") or not shown:
                    self.commands.append([row.removeprefix("$ "), [] if shown else None])
                else:
                    self.commands[-1][1].append(row)
        for command in self.commands:
            if wrapped:
                command[1] = ["".join(command[1])]
            for word, value in settings.items():
                command[0] = re.sub(rf"(?<![\w/.-]){re.escape(word)}(?![\w/.-])", value, command[0])


def examples_of(text):
    return [Example(text[:m.start()].count("\n") + 1, m[2], m[1], m[3], m[4]) for m in MARKED.finditer(text)]


def shape(line):
    """The line with numbers, paths and spaces made equal."""
    line = re.sub(r"(?<!\S)[^\s:;,()]*/[^\s:;,()]*", "PATH", line)
    # `--dtype auto` follows the processor: the default model runs in bf16 on AVX-512, elsewhere in f32.
    line = re.sub(r"\bb(?=f16\b|float16\b)", "", line)
    # `amx-blocks` is the best set where the pages' machine had `avx512`, and leaves bf16 the better dtype too.
    line = re.sub(r"\bamx(-blocks)?\b", "avx0", line)
    line = re.sub(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", "#", line)
    line = re.sub(r"(?<=[\s(])[-+](?=#)", "", line)
    line = re.sub(r"(?<=\S)(\s+)-(?=\s|$)", r"\1#", line)
    return " ".join(line.split())


def difference(shown, printed):
    """Empty when what is printed has the shape of what is shown, else the two as a diff."""
    shown = [shape(line) for line in shown if line.strip()]
    printed = [shape(line) for line in printed.splitlines() if line.strip()]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n"
                      for line in shown)
    if re.fullmatch(pattern, "".join(line + "\n" for line in printed)):
        return ""
    return "\n".join(difflib.unified_diff(shown, printed, "the page", "the command", lineterm="", n=2))


class Server:
    """A command that serves, on a port of its own; ready when made."""

    def __init__(self, command):
        self.folder = tempfile.TemporaryDirectory()
        place = Folder(self.folder.name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(["bash", "-c", f"exec {command} --port {self.port}"], cwd=place.path,
                                        env=place.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        begin = time.monotonic()
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() - begin > SECONDS:
                self.end()
                raise AssertionError(f"$ {command}\n{self.written()}")
            time.sleep(0.05)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def written(self):
        self.log.seek(0)
        return self.log.read()


class Folder:
    """Where the examples of one page run."""

    port = 30000

    def __init__(self, path):
        self.path = pathlib.Path(path)
        for name in LINKED:
            (self.path / name).symlink_to(ROOT / name)
        for folder in ("bin", "build/release/bin"):
            (self.path / folder).mkdir(parents=True)
            (self.path / folder / "reprise").symlink_to(BINARY.resolve())
        (self.path / "cache").mkdir()
        if (CACHE / "smollm2").is_dir():
            (self.path / "cache/smollm2").symlink_to(CACHE / "smollm2")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("REPRISE_", "ASCEND_"))}
        # What curl prints is the answer alone, and an error of HTTP is one of the command.
        (self.path / ".curlrc").write_text("no-progress-meter\nfail-with-body\n", encoding="utf-8")
        self.environment |= {"CURL_HOME": str(self.path), "LC_ALL": "C.UTF-8",
                             "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}",
                             "REPRISE_CACHE": str(self.path / "cache")}

    def run(self, command):
        command = command.replace("127.0.0.1:30000", f"127.0.0.1:{self.port}")
        done = subprocess.run(["bash", "-c", command], cwd=self.path, env=self.environment, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS)
        return done.returncode, done.stdout


class Pages(unittest.TestCase):
    """A test for each page with marked examples, added below."""

    examples = 0
    servers = {}

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers.values():
            server.end()
            server.log.close()
        cls.servers.clear()

    def run_page(self, path):
        with tempfile.TemporaryDirectory() as name:
            folder = Folder(name)
            for example in examples_of(path.read_text(encoding="utf-8")):
                if example.kind == "file":
                    (folder.path / example.name).write_text(example.block, encoding="utf-8")
                    continue
                for command, shown in example.commands:
                    if example.kind == "serve":
                        self.need_model(folder, command)
                        if command not in self.servers:
                            self.servers[command] = Server(command)
                        folder.port = self.servers[command].port
                        continue
                    with self.subTest(at=f"{path.relative_to(ROOT)}:{example.line}", command=command):
                        self.run_example(folder, example, command, shown)

    def need_model(self, folder, command):
        if re.search(r"\bsmollm2\b", command) and not (folder.path / "cache/smollm2").exists():
            self.assertNotEqual(os.environ.get("CI"), "true", "SmolLM2 is not in the cache")
            self.skipTest("SmolLM2 is not in the cache; run `reprise pull smollm2`")

    def run_example(self, folder, example, command, shown):
        self.need_model(folder, command)
        status, printed = folder.run(command)
        self.assertEqual(status, example.status, f"$ {command}\n{printed}")
        if shown is not None:
            found = difference(shown, printed)
            self.assertEqual(found, "", f"$ {command}\n{found}\n\n(whole output)\n{printed}")

    def test_there_are_examples(self):
        self.assertGreaterEqual(Pages.examples, 20)


def add_pages():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        examples = examples_of(path.read_text(encoding="utf-8")) if path.is_file() else []
        if not examples:
            continue
        Pages.examples += sum(e.kind == "run" for e in examples)
        name = re.sub(r"\W", "_", path.stem.lower())
        setattr(Pages, f"test_{name}", lambda self, path=path: self.run_page(path))


class Shapes(unittest.TestCase):
    """The comparison itself."""

    def test_figures_paths_and_spaces_do_not_matter(self):
        self.assertEqual(difference(["a   1.5 ms in /x/y", "", "b -3 of 4,096"], "a 27 ms in z/w/v\nb 0.1 of 7\n"), "")
        self.assertEqual(difference(["linear  8  93.8"], "linear  8     -\n"), "")

    def test_the_dtype_of_the_processor_does_not_matter(self):
        self.assertEqual(difference(["%1: bf16[T] bfloat16", "cpu.add.bf16.avx512"],
                                    "%1: f32[T] float32\ncpu.add.f32.avx2\n"), "")
        self.assertNotEqual(difference(["a bf16"], "a i8\n"), "")

    def test_words_lines_and_order_do(self):
        for shown, printed in (("a 1", "b 1"), ("a", ""), ("", "a"), ("a\nb", "b\na"), ("a", "a\nb"), ("+ %1", "- %1"),
                               ("...\nb", "b\nc"), ("a ... c", "a b d")):
            with self.subTest(shown=shown, printed=printed):
                self.assertNotEqual(difference(shown.split("\n"), printed), "")

    def test_what_is_left_out(self):
        for shown, printed in (("...\nb", "a\na\nb"), ("a\n...", "a"), ("a\n...\nd", "a\nb\nc\nd"),
                               ("a ... c", "a b c"), ("a ...", "a b")):
            with self.subTest(shown=shown, printed=printed):
                self.assertEqual(difference(shown.split("\n"), printed), "")

    def test_marks(self):
        text = ("# P\n\n<!-- file: a.pass -->\n```text\nx\n```\n   <!-- run: exit=1 M=tests/m -->\n\n   ```\n"
                "   $ reprise a --model-path M \\\n     --b\n   out\n   ```\n"
                "<!-- run:\n$ reprise c\n-->\n```text\npart\n```\n"
                "```\n$ not marked\n```\n<!-- run -->\n```sh\nreprise d\nreprise e\n```\n")
        text += ("<!-- serve -->\n```\nreprise serve\n```\n<!-- run: $ echo a | cat -->\n```\n$ cat\n> a\na\n```\n"
                 "<!-- not run: no\nnetwork -->\n```\nreprise pull\n```\n")
        file, one, part, two, server, session, nothing = examples_of(text)
        self.assertEqual((file.kind, file.name, file.block), ("file", "a.pass", "x\n"))
        self.assertEqual((one.status, one.commands), (1, [["reprise a --model-path tests/m --b", ["out"]]]))
        self.assertEqual(part.commands, [["reprise c", ["...", "part", "", "..."]]])
        self.assertEqual(two.commands, [["reprise d", None], ["reprise e", None]])
        self.assertEqual((server.kind, server.commands), ("serve", [["reprise serve", None]]))
        self.assertEqual(session.commands, [["echo a | cat", ["...", "a", "", "..."]]])
        self.assertEqual((nothing.kind, nothing.commands), ("not run", []))

    def test_a_failing_command_and_another_output_fail(self):
        for text in ("<!-- run -->\n```\nfalse\n```\n", "<!-- run: exit=1 -->\n```\ntrue\n```\n",
                     "<!-- run -->\n```\n$ echo b\na\n```\n"):
            with tempfile.TemporaryDirectory() as name, self.subTest(text=text):
                example = examples_of(text)[0]
                command, shown = example.commands[0]
                with self.assertRaises(AssertionError):
                    Pages().run_example(Folder(name), example, command, shown)


add_pages()
if not os.access(BINARY, os.X_OK):
    if "REPRISE_BINARY" in os.environ:
        raise SystemExit(f"there is no {BINARY}")
    Pages = unittest.skip(f"there is no {BINARY}; ./dev build makes it, $REPRISE_BINARY names another")(Pages)

if __name__ == "__main__":
    unittest.main()
