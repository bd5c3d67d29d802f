#!/usr/bin/env python3
"""The packages of Debian as an administrator has them: installed by apt into a Debian 12 of their own, where systemd
starts, reloads and stops the service; upgraded, and purged.

    deb_test.py --dist FOLDER --work FOLDER

Needs root, and a mirror of Debian. The bare Debian in --work is made once.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest

from support import ROOT, ask, make_model, run

options = None


def apt_sources():
    """Lines of a mirror of Debian 12 that this machine uses."""
    for file in sorted(pathlib.Path("/etc/apt").rglob("*.sources")) + [pathlib.Path("/etc/apt/sources.list")]:
        if file.is_file() and (found := re.search(r"(https?://\S*/debian)/?\s", file.read_text() + "\n")):
            return found[1]
    return "http://deb.debian.org/debian"


class Root:
    """A Debian, a copy of a bare one; its systemd as process 1 of a container without a network of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.cgroup = pathlib.Path(f"/sys/fs/cgroup/systemd/reprise-{os.getpid()}")
        self.container = None

    def run(self, *command, fails=False):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        return run("chroot", self.folder, *command, env=env, fails=fails).stdout

    def boot(self):
        """What is wrong with this machine, or nothing."""
        if not pathlib.Path("/sys/fs/cgroup/systemd/cgroup.procs").exists():
            return "a version 1 hierarchy of cgroups for systemd is expected in /sys/fs/cgroup/systemd"
        if not shutil.which("bwrap"):
            return "there is no bwrap (Debian: bubblewrap)"
        self.cgroup.mkdir()
        start = f"echo $$ >{self.cgroup}/cgroup.procs; exec unshare --cgroup bwrap \"$@\""
        command = ["--bind", self.folder, "/", "--unshare-pid", "--as-pid-1", "--cap-add", "ALL", "--proc", "/proc",
                   "--dev", "/dev", "--tmpfs", "/run", "--tmpfs", "/sys/fs/cgroup",
                   "--bind", self.cgroup, "/sys/fs/cgroup/systemd", "--setenv", "container", "bwrap",
                   "--info-fd", "1", "/lib/systemd/systemd"]
        self.container = subprocess.Popen(["sh", "-c", start, "sh", *map(str, command)], stdout=subprocess.PIPE,
                                          stderr=subprocess.DEVNULL)
        text = ""
        while "}" not in text:
            text += self.container.stdout.readline().decode()
        self.pid = json.loads(text)["child-pid"]
        end = time.monotonic() + 30
        while self.inside("systemctl", "is-system-running", fails=None).strip() != "running":
            if time.monotonic() > end:
                return "systemd does not come up"
            time.sleep(0.2)
        return ""

    def inside(self, *command, fails=False):
        """A command next to systemd; fails None: either."""
        done = subprocess.run(["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "-r", *map(str, command)],
                              capture_output=True, text=True, timeout=120)
        if fails is not None and (done.returncode != 0) != fails:
            log = self.inside("journalctl", "-u", "reprise", "--no-pager", "-n", "30", fails=None)
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}{log}")
        return done.stdout

    def halt(self):
        if self.container:
            subprocess.run(["kill", "-9", str(self.pid)], check=False)
            self.container.wait()
            self.container.stdout.close()
            for folder in sorted(self.cgroup.rglob("*"), reverse=True):
                if folder.is_dir():
                    folder.rmdir()
            self.cgroup.rmdir()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Packages(unittest.TestCase):
    """The steps of one life, in the order of their names."""

    @classmethod
    def setUpClass(cls):
        cls.root = Root(options.work / "root")
        bare = options.work / "debian"
        shutil.rmtree(cls.root.folder, ignore_errors=True)
        if not (bare / "etc/debian_version").exists():
            shutil.rmtree(bare, ignore_errors=True)
            run("debootstrap", "--variant=minbase", "bookworm", bare, apt_sources())
        run("cp", "-a", "--reflink=auto", bare, cls.root.folder)
        shutil.copy("/etc/resolv.conf", cls.root.folder / "etc/resolv.conf")
        cls.before = cls.files()
        cls.debs = {p.name.split("_")[0]: p for p in options.dist.glob("*.deb")}
        cls.copy("reprise", "libreprise0", "libreprise-dev", "reprise-ascend-sim")
        cls.root.run("apt-get", "update", "-q")

    @classmethod
    def tearDownClass(cls):
        cls.root.halt()
        shutil.rmtree(cls.root.folder, ignore_errors=True)

    @classmethod
    def files(cls):
        return {str(p.relative_to(cls.root.folder)) for p in cls.root.folder.rglob("*reprise*")}

    @classmethod
    def copy(cls, *names):
        for name in names:
            shutil.copy(cls.debs[name], cls.root.folder / f"tmp/{name}.deb")

    def apt(self, *words):
        self.root.run("apt-get", "-y", "-q", "-o", "Dpkg::Options::=--force-confold", "--no-install-recommends", *words)

    def state(self):
        shown = self.root.inside("systemctl", "show", "reprise", "-p",
                            "ActiveState,StatusText,Result,MainPID,ExecMainStatus,NRestarts")
        return dict(line.split("=", 1) for line in shown.splitlines())

    def test_1_install(self):
        self.apt("install", "systemd", "dbus", "/tmp/reprise.deb", "/tmp/reprise-ascend-sim.deb")
        self.assertIn("libreprise, ABI", self.root.run("reprise", "--version"))
        self.assertIn("processor", self.root.run("reprise", "doctor"))
        self.assertEqual(self.root.run("dpkg", "-V", "reprise"), "")
        self.assertRegex(self.root.run("getent", "passwd", "reprise"), r"^reprise:x:\d+:\d+:Reprise:/var/lib/reprise:")
        # Neither enabled nor started: no model is named yet.
        self.assertFalse(list((self.root.folder / "etc/systemd/system").rglob("*reprise*")))
        for place in ("usr/share/man/man1/reprise-serve.1.gz", "usr/share/man/man7/reprise-settings.7.gz",
                      "usr/share/bash-completion/completions/reprise", "usr/share/zsh/vendor-completions/_reprise",
                      "usr/share/reprise/grafana/alerts.yml", "lib/systemd/system/reprise@.service",
                      "usr/lib/ascend-sim/libascendcl.so", "etc/reprise/server.json"):
            self.assertTrue((self.root.folder / place).is_file(), place)

    def test_2_the_service(self):
        problem = self.root.boot()
        if problem:
            self.skipTest(problem)
        # The settings of the package name no model, which is a wrong use, and no restart mends it.
        self.root.inside("systemctl", "start", "reprise", fails=True)
        state = self.state()
        self.assertEqual((state["Result"], state["ExecMainStatus"], state["NRestarts"]), ("exit-code", "2", "0"))
        model = make_model(self.root.folder / "srv/model")
        run("chmod", "-R", "a+rX", model)
        port = free_port()
        file = self.root.folder / "etc/reprise/server.json"
        # As one edits it: below the comments.
        text = file.read_text()
        mine = f'"model-path": "/srv/model", "load-format": "dummy", "threads": 1, "port": {port},\n  "log-format"'
        file.write_text(text.replace('"log-format"', mine, 1) if text.count('\n  "log-format"') == 1 else "")
        self.root.inside("systemctl", "reset-failed", "reprise")
        self.root.inside("systemctl", "start", "reprise")
        # Type=notify: it is ready when the start returns.
        url = f"http://127.0.0.1:{port}"
        self.assertEqual(ask(f"{url}/readyz")[0], 200)
        self.assertEqual(ask(f"{url}/v1/completions", {"prompt": "abc", "max_tokens": 4})[0], 200)
        state = self.state()
        self.assertEqual((state["ActiveState"], state["StatusText"]), ("active", "serving model"))
        self.assertTrue(list((self.root.folder / "var/cache/reprise/plans").iterdir()))
        file.write_text(file.read_text().replace('"threads": 1', '"threads": 2'))
        self.root.inside("systemctl", "reload", "reprise")
        self.assertEqual(self.state()["MainPID"], state["MainPID"])
        self.assertIn("a restart puts into effect: threads", self.root.inside("journalctl", "-u", "reprise", "--no-pager"))
        self.root.inside("systemctl", "restart", "reprise")
        self.assertEqual(ask(f"{url}/readyz")[0], 200)
        type(self).url = url

    def test_2_with_promtool(self):
        # Prometheus' own checker, which is in its package of Debian and needs nothing else of it.
        self.root.run("sh", "-ec", "mkdir -p /tmp/prometheus; cd /tmp/prometheus; apt-get download -q prometheus; "
                      "dpkg-deb -x prometheus_*.deb .")
        promtool = "/tmp/prometheus/usr/bin/promtool"
        self.assertIn("SUCCESS: ", self.root.run(promtool, "check", "rules", "/usr/share/reprise/grafana/alerts.yml"))
        if not self.root.container:
            self.skipTest("the service was not started")
        (self.root.folder / "tmp/metrics").write_text(ask(f"{self.url}/metrics")[1])
        # It reads all of them. What it remarks on are names: those of vLLM and SGLang have colons and units in short.
        remarks = self.root.run("sh", "-c", f"{promtool} check metrics </tmp/metrics 2>&1; test $? -eq 3")
        for line in remarks.splitlines():
            self.assertRegex(line, r"^\w+:\w+ metric names should not contain ':'$|^sglang:\w+_gb metric names should not "
                             r"contain abbreviated units$|^vllm:iteration_tokens_total non-counter metrics should not "
                             r'have "_total" suffix$')

    def test_3_upgrade(self):
        # The same package as a later version; the settings were changed, and stay.
        work = options.work / "later"
        shutil.rmtree(work, ignore_errors=True)
        run("dpkg-deb", "-R", self.debs["reprise"], work)
        control = work / "DEBIAN/control"
        control.write_text(re.sub(r"^(Version: \S+)$", r"\1+later", control.read_text(), flags=re.M))
        run("dpkg-deb", "--root-owner-group", "-b", work, self.root.folder / "tmp/later.deb")
        file = self.root.folder / "etc/reprise/server.json"
        settings = file.read_text()
        if self.root.container:
            pid = self.state()["MainPID"]
            self.root.inside("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-confold", "-i", "/tmp/later.deb")
            # The running server is restarted, into the new version.
            self.assertEqual(self.state()["ActiveState"], "active")
            self.assertNotEqual(self.state()["MainPID"], pid)
            self.assertEqual(ask(f"{self.url}/readyz")[0], 200)
        else:
            self.apt("install", "/tmp/later.deb")
        self.assertEqual(file.read_text(), settings)
        self.assertIn("+later", self.root.run("dpkg-query", "-W", "reprise"))

    def test_4_stop(self):
        if not self.root.container:
            self.skipTest("the service was not started")
        self.root.inside("systemctl", "stop", "reprise")
        state = self.state()
        self.assertEqual((state["ActiveState"], state["Result"]), ("inactive", "success"))
        self.root.halt()
        self.root.container = None

    def test_5_the_library(self):
        self.copy("libreprise0", "libreprise-dev")
        self.apt("install", "gcc", "libc6-dev", "pkg-config", "/tmp/libreprise0.deb", "/tmp/libreprise-dev.deb")
        make_model(self.root.folder / "srv/model")
        shutil.copy(ROOT / "examples/embed/embed.c", self.root.folder / "tmp/embed.c")
        self.root.run("sh", "-ec", "cd /tmp && gcc -o embed embed.c $(pkg-config --cflags --libs reprise)")
        said = self.root.run("/tmp/embed", "abc", "model-path=/srv/model", "load-format=dummy", "threads=1")
        self.assertTrue(said)

        self.assertIn("libreprise.so.0", self.root.run("sh", "-c", "ldd /tmp/embed"))
        # The archive, with what it leaves to the program: the packages that libreprise-dev suggests.
        suggested = self.root.run("dpkg-query", "-W", "-f", "${Suggests}", "libreprise-dev").split(", ")
        self.apt("install", *suggested)
        self.root.run("sh", "-ec", "cd /tmp && gcc -o inside embed.c "
                      "$(pkg-config --static --cflags --libs reprise | sed 's/-lreprise/-l:libreprise.a/')")
        self.assertNotIn("libreprise", self.root.run("ldd", "/tmp/inside"))
        self.assertTrue(self.root.run("/tmp/inside", "abc", "model-path=/srv/model", "load-format=dummy", "threads=1"))

    def test_6_purge(self):
        self.apt("purge", "reprise", "libreprise0", "libreprise-dev", "reprise-ascend-sim")
        left = self.files() - self.before
        left = {p for p in left if not p.startswith(("tmp/", "var/log/", "var/cache/apt", "srv/"))}
        self.assertEqual(left, set())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("dist", "work"):
        parser.add_argument(f"--{name}", required=True, type=lambda text: pathlib.Path(text).resolve())
    options, rest = parser.parse_known_args()
    if os.geteuid() != 0:
        sys.exit("./dev test packages needs root: it makes a Debian and runs systemd in it")
    options.work.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
