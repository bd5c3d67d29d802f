#!/usr/bin/env python3
"""The image of the OCI: the same bytes twice, blobs that are what their names say, and a root in which the server runs.

    image_test.py --reprise FILE --model FOLDER --most BYTES
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

from support import ROOT, Server, ask, run

options = None


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.digest = cls.make("image", "--archive", cls.folder / "image.tar")
        cls.image = cls.folder / "image"

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    @classmethod
    def make(cls, name, *more):
        done = run(sys.executable, ROOT / "tools/make_oci.py", "--binary", options.reprise, "--out", cls.folder / name,
                   "--most-bytes", options.most, *more)
        return done.stdout.split()[0]

    def blob(self, descriptor):
        data = (self.image / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        self.assertEqual(len(data), descriptor["size"])
        return data

    def manifest(self):
        index = json.loads((self.image / "index.json").read_text())
        self.assertEqual(len(index["manifests"]), 1)
        return json.loads(self.blob(index["manifests"][0]))

    def test_two_runs_give_one_digest(self):
        self.assertEqual(self.make("again"), self.digest)

    def test_blobs_are_what_their_names_say(self):
        self.assertEqual(json.loads((self.image / "oci-layout").read_text()), {"imageLayoutVersion": "1.0.0"})
        index = json.loads((self.image / "index.json").read_text())
        self.assertEqual(index["manifests"][0]["digest"], self.digest)
        for file in (self.image / "blobs/sha256").iterdir():
            self.assertEqual(hashlib.sha256(file.read_bytes()).hexdigest(), file.name)
        manifest = self.manifest()
        config = json.loads(self.blob(manifest["config"]))
        root = gzip.decompress(self.blob(manifest["layers"][0]))
        self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(root).hexdigest()])
        self.assertEqual(config["config"]["User"], "65532:65532")
        size = sum(f.stat().st_size for f in (self.image / "blobs/sha256").iterdir())
        self.assertLessEqual(size, int(options.most))
        with tarfile.open(self.folder / "image.tar") as archive:
            self.assertIn("index.json", archive.getnames())

    def unpack(self):
        root = self.folder / "root"
        if not root.exists():
            with tarfile.open(self.image / "blobs" / self.manifest()["layers"][0]["digest"].replace(":", "/")) as tar:
                names = tar.getnames()
                self.assertEqual(names, sorted(names))
                self.assertFalse([n for n in names if n.startswith(("bin", "usr/sbin")) or n.endswith(("/sh", "/bash"))])
                tar.extractall(root)
        return root

    def inside(self, root, *command):
        """A command with the root as its file system, a view of processes of its own, and the image's user."""
        mounts = f"mount -t proc proc {root}/proc && exec chroot --userspec=65532:65532 {root} \"$@\""
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", mounts, "sh", *map(str, command)]

    def test_the_root_runs(self):
        if os.geteuid() != 0:
            self.skipTest("chroot needs root")
        if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
            self.skipTest("this machine does not let a process have file systems of its own")
        root = self.unpack()
        env = {"PATH": os.environ["PATH"], "HOME": "/var/cache/reprise", "REPRISE_CACHE": "/var/cache/reprise"}
        said = run(*self.inside(root, "/usr/bin/reprise", "--version"), env=env).stdout
        self.assertTrue(said.startswith("reprise "), said)
        shutil.copytree(options.model, root / "models", dirs_exist_ok=True)
        config = json.loads(self.blob(self.manifest()["config"]))["config"]
        with Server(*self.inside(root, *config["Entrypoint"], *config["Cmd"], "--load-format", "dummy", "--port", 0,
                                 "--threads", 1), env=env) as server:
            url = server.url()
            self.assertEqual(ask(f"{url}/readyz")[0], 200)
            status, text = ask(f"{url}/v1/completions", {"prompt": "abc", "max_tokens": 4})
            self.assertEqual(status, 200, text)
            self.assertTrue(list((root / "var/cache/reprise/plans").iterdir()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("reprise", "model", "most"):
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
