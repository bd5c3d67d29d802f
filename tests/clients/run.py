"""Runs real clients against `reprise serve`: ./dev test clients [NAME...|all].

Each client has a test file here (NAME_test.py) and a list of pinned packages (requirements/), which pip installs into a
virtual environment under $REPRISE_CACHE/clients, once. pip is called as the user has set it up. The lists are
complete, so nothing is resolved, and a list may leave out what a benchmark does not import. A client that does not
install is named with the reason, and is no success: the status is 1 when a test failed or nothing ran.
With --allow-absent a client that cannot be installed (no package index here) is named and forgiven. The clients that
were absent, with the reasons, are in build/logs/clients-absent.txt, which .ci/run prints at its end; without any there
is no such file.
"""

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LOGS = HERE.parents[1] / "build/logs"
CACHE = pathlib.Path(os.environ.get("REPRISE_CACHE") or pathlib.Path.home() / ".cache/reprise") / "clients"
# Those that install in about a minute; the others bring hundreds of megabytes.
QUICK = ["openai", "schemathesis"]
# Three benchmarks bring gigabytes of the same; they share one environment.
SHARED = {"openai-responses": "openai", "openai-families": "openai", "guidellm": "with-torch", "sglang": "with-torch",
          "vllm": "with-torch"}
INSTALL_SECONDS = 3600
TEST_SECONDS = 3600


def clients():
    return sorted(p.stem[: -len("_test")].replace("_", "-") for p in HERE.glob("*_test.py"))


def reason(log):
    """The line of a failed command that tells why."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|Error|error|OSError)\b", line)]
    return (errors or lines or ["it said nothing"])[-1][:300]


def logged(command, log, seconds, **more):
    """Runs it with its output in a file; True when it went well."""
    with open(log, "a") as out:
        print("$", *command, file=out, flush=True)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                  timeout=seconds, check=False, **more)
        except subprocess.TimeoutExpired:
            print(f"ERROR: it took longer than {seconds} s", file=out)
            return False
    return done.returncode == 0


def environment(name):
    """The folder of the client's programs, or why there is none."""
    wanted = HERE / "requirements" / f"{name}.txt"
    key = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{key}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return folder / "bin", None
        for old in CACHE.glob(f"{name}-" + "[0-9a-f]" * 12):
            shutil.rmtree(old)
        log = LOGS / f"clients-{name}-install.log"
        log.unlink(missing_ok=True)
        pip = [folder / "bin/python", "-m", "pip", "install", "--no-input", "--no-deps", "-r", wanted]
        for command in ([sys.executable, "-m", "venv", folder], pip):
            if not logged([str(c) for c in command], log, INSTALL_SECONDS):
                return None, reason(log)
        (folder / "complete").touch()
        return folder / "bin", None


def absent_file():
    return LOGS / "clients-absent.txt"


def run(name):
    """Prints how it went; True, False, or None where the client is not to be had."""
    begin = time.monotonic()
    programs, why = environment(SHARED.get(name, name))
    if why:
        print(f"absent  {name}: it does not install here: {why}", flush=True)
        with open(absent_file(), "a") as out:
            print(f"{name}: {why}", file=out)
        return None
    installed = time.monotonic() - begin
    log = LOGS / f"clients-{name}.log"
    log.unlink(missing_ok=True)
    begin = time.monotonic()
    command = [str(programs / "python"), "-W", "ignore", "-m", "unittest", "-v", f"{name.replace('-', '_')}_test"]
    good = logged(command, log, TEST_SECONDS, cwd=HERE)
    took = f"{time.monotonic() - begin:.0f} s" + (f", installed in {installed:.0f} s" if installed > 2 else "")
    said = log.read_text(errors="replace")
    ran = re.search(r"^Ran (\d+) tests?", said, re.M)
    if good and ran and int(ran[1]) > 0:
        print(f"ok      {name}: {ran[1]} tests ({took})", flush=True)
        return True
    print(f"failed  {name} ({took}); the end of {log}:", flush=True)
    print(said[-6000:], flush=True)
    return False


def main(names):
    only_check = names[:1] == ["--check"]
    names = names[1:] if only_check else names
    allow_absent = names[:1] == ["--allow-absent"]
    names = names[1:] if allow_absent else names
    if names == ["all"]:
        names = clients()
    unknown = [n for n in names if n not in clients()]
    if unknown:
        print(f"./dev: no client \"{unknown[0]}\"; there are: {' '.join(clients())} all", file=sys.stderr)
        return 2
    if only_check:
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    absent_file().unlink(missing_ok=True)
    results = [run(n) for n in names or QUICK]
    if allow_absent:
        return 1 if False in results else 0
    return 1 if False in results or True not in results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
