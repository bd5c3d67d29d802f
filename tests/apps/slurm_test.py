#!/usr/bin/env python3
"""Ranks that Slurm starts: slurmctld, slurmd and munged of Debian on this machine alone, in a temporary folder.

    slurm_test.py --reprise FILE --model FOLDER
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "salloc", "scancel", "squeue")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
CONFIGURATION = """ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/pgid
TaskPlugin=task/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
{node} NodeAddr=127.0.0.1 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
options = None


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def missing():
    names = [name for name in NEEDED if not shutil.which(name, path=PATH)]
    return f"there is no {', '.join(names)} (Debian: slurmctld, slurmd, slurm-client, munge)" if names else ""


def wait_for(test, what, seconds=30):
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if missing() and os.environ.get("CI"):
            raise AssertionError(missing())
        if missing():
            raise unittest.SkipTest(missing())
        if os.geteuid() != 0:
            raise unittest.SkipTest("Slurm's daemons need root")
        cls.held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.held.cleanup)
        cls.folder = pathlib.Path(cls.held.name)
        # Logs and sockets of munged must lie in folders that nobody else may write to.
        cls.folder.chmod(0o755)
        for name in ("state", "spool"):
            (cls.folder / name).mkdir()
        cls.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "REPRISE_"))}
        cls.environment |= {"PATH": PATH, "SLURM_CONF": str(cls.folder / "slurm.conf")}
        key = cls.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        cls.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={cls.folder}/munge.socket",
                  f"--pid-file={cls.folder}/munged.pid", f"--log-file={cls.folder}/munged.log",
                  f"--seed-file={cls.folder}/munged.seed")
        wait_for((cls.folder / "munge.socket").exists, "a socket of munged")
        node = cls.run_here("slurmd", "-C").stdout.splitlines()[0]
        controller, daemon = free_ports(2)
        host = re.match(r"NodeName=(\S+)", node)[1]
        (cls.folder / "slurm.conf").write_text(
            CONFIGURATION.format(host=host, node=node, folder=cls.folder, controller=controller, daemon=daemon))
        cls.start("slurmctld", "-D")
        cls.start("slurmd", "-D")
        wait_for(lambda: "idle" in cls.run_here("sinfo", "-h").stdout, "an idle node of Slurm", 60)

    @classmethod
    def start(cls, *command):
        log = open(cls.folder / f"{command[0]}.out", "w", encoding="utf-8")
        process = subprocess.Popen(command, env=cls.environment, stdout=log, stderr=log, cwd=cls.folder)

        def end():
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()

        cls.addClassCleanup(end)

    @classmethod
    def run_here(cls, *command):
        return subprocess.run(command, env=cls.environment, cwd=cls.folder, capture_output=True, text=True, timeout=120)

    @staticmethod
    def model(ranks):
        return ["--model-path", options.model, "--load-format", "dummy", "--device", "cpu", "--dtype", "float32",
                "--threads", "1", "--tp-size", str(ranks)]

    def generate(self, *before, ranks=1):
        return self.run_here(*before, options.reprise, "generate", *self.model(ranks), "--json", "--prompt", "abc",
                             "--max-tokens", "12", "--temperature", "0", "--ignore-eos")

    def tokens(self, *before, ranks=1):
        done = self.generate(*before, ranks=ranks)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["output"]["token_ids"]

    def test_tokens_are_those_of_one_process(self):
        alone = self.tokens()
        self.assertEqual(len(alone), 12)
        self.assertEqual(self.tokens("srun", "--overcommit", "-n", "2", ranks=2), alone)

    def test_mpirun_in_an_allocation_counts_its_own_processes(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun (Debian: openmpi-bin)")
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
        self.assertEqual(self.tokens("salloc", "--overcommit", "-n", "1", *mpirun, ranks=2), self.tokens())

    def test_a_size_that_disagrees_is_one_line(self):
        done = self.generate("srun", "--overcommit", "-n", "2", ranks=3)
        self.assertEqual(done.returncode, 2, done.stderr)
        told = "srun started 2 processes (SLURM_STEP_NUM_TASKS) but --tp-size 3 asks for 3"
        self.assertEqual(done.stderr.count(told), 1, done.stderr)

    def serve(self):
        """A step of Slurm that serves, its address, and a function that gives its end (status, log)."""
        port, = free_ports(1)
        process = subprocess.Popen(
            ["srun", "--overcommit", "-n", "2", options.reprise, "serve", *self.model(2), "--port", str(port)],
            env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)

        def answers():
            if process.poll() is not None:
                raise AssertionError(f"ended with {process.returncode}: {process.stdout.read()}")
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200
            except OSError:
                return False

        wait_for(answers, "a server that answers", 60)

        def end():
            text = process.communicate(timeout=60)[0]
            return process.returncode, text

        return end

    def ranks(self):
        """The processes of the job by their rank."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if pathlib.Path(os.readlink(folder / "exe")) != pathlib.Path(options.reprise).resolve():
                    continue
                variables = dict(v.split("=", 1) for v in (folder / "environ").read_text().split("\0") if "=" in v)
            except (OSError, UnicodeDecodeError):
                continue
            if variables.get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                found.setdefault(variables.get("SLURM_PROCID"), []).append(int(folder.name))
        return found

    def test_a_lost_rank_ends_the_step_with_its_name(self):
        end = self.serve()
        lost = self.ranks()["1"]
        for process in lost:
            os.kill(process, signal.SIGKILL)
        status, log = end()
        self.assertNotEqual(status, 0, log)
        self.assertRegex(log, r"rank 1 \(process \d+\) ended")
        wait_for(lambda: not self.ranks(), "no process is left")

    def test_scancel_drains(self):
        end = self.serve()
        job, = self.run_here("squeue", "-h", "-o", "%i").stdout.split()
        self.assertEqual(self.run_here("scancel", "--signal=TERM", job).returncode, 0)
        status, log = end()
        self.assertEqual(status, 0, log)
        self.assertIn("shutting down", log)
        wait_for(lambda: not self.ranks(), "no process is left")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--reprise", required=True)
    parser.add_argument("--model", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
