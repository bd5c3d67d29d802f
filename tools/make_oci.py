#!/usr/bin/env python3
"""Writes an image of the OCI: the program, the libraries that it is linked with, and nothing else (no shell).

  tools/make_oci.py --binary build/release/bin/reprise --out dist/reprise-oci [--archive dist/reprise-oci.tar]

The folder is an OCI image layout; the archive is the same as one file. Needs ldd and strip, and no container program.
The same files give the same digest: names are in order, and times and owners are fixed.
"""
import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_BYTES = 15_000_000
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", 1767225600))  # 2026-01-01
USER = 65532
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PASSWD = f"root:x:0:0:root:/:/sbin/nologin\nreprise:x:{USER}:{USER}:Reprise:/var/cache/reprise:/sbin/nologin\n"
GROUP = f"root:x:0:\nreprise:x:{USER}:\n"
COMMAND = ["serve", "--host", "0.0.0.0", "--model-path", "/models"]


def output(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def version():
    return re.search(r"project\(reprise VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def libraries(binary):
    """{place in the image: file here} of what the binary is linked with; the loader stands where the binary names it."""
    out = {}
    for line in output("ldd", binary).splitlines():
        if found := re.match(r"\s*(\S+) => (/\S+) \(0x", line):
            triplet = pathlib.Path(found[2]).parent.name
            out[f"usr/lib/{triplet}/{found[1]}"] = pathlib.Path(found[2]).resolve()
        elif found := re.match(r"\s*(/\S+) \(0x", line):
            out[found[1].lstrip("/")] = pathlib.Path(found[1]).resolve()
        elif "not found" in line:
            sys.exit(f"{binary}: {line.strip()}")
    return out


def licences(files):
    """The licence texts of the packages that the files come from, where Debian's package manager knows them."""
    out = {"usr/share/doc/reprise/copyright": (ROOT / "LICENSE").read_bytes()}
    if not shutil.which("dpkg-query"):
        print("note: without dpkg-query the image lacks the licence texts of the libraries", file=sys.stderr)
        return out
    for file in files:
        found = None
        for path in (file, str(file).removeprefix("/usr")):
            found = found or subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True)
            if found.returncode != 0:
                found = None
        if not found:
            sys.exit(f"{file} belongs to no package, so its licence is not known")
        package = found.stdout.split(":")[0]
        out[f"usr/share/doc/{package}/copyright"] = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()
    return out


def stripped(binary):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "reprise"
        subprocess.run(["strip", "-s", "-o", copy, binary], check=True)
        return copy.read_bytes()


def content(binary):
    """{place: (bytes, mode)} of all files."""
    files = {"usr/bin/reprise": (stripped(binary), 0o755)}
    linked = libraries(binary)
    for place, file in linked.items():
        files[place] = (file.read_bytes(), 0o755)
    for place, text in licences(linked.values()).items():
        files[place] = (text, 0o644)
    files["etc/passwd"] = (PASSWD.encode(), 0o644)
    files["etc/group"] = (GROUP.encode(), 0o644)
    files["etc/nsswitch.conf"] = (b"hosts: files dns\n", 0o644)
    return files


def layer(files):
    """The root as a tar file."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        folders = {"models": (0o755, 0), "proc": (0o555, 0), "tmp": (0o1777, 0), "var/cache/reprise": (0o750, USER)}
        for place in [*files, *folders]:
            for parent in pathlib.PurePosixPath(place).parents:
                folders.setdefault(str(parent), (0o755, 0))
        folders.pop(".")
        for place in sorted([*files, *folders]):
            entry = tarfile.TarInfo(place)
            entry.mtime = EPOCH
            if place in folders:
                entry.type = tarfile.DIRTYPE
                entry.mode, entry.uid = folders[place]
                entry.gid = entry.uid
                tar.addfile(entry)
            else:
                data, entry.mode = files[place]
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return held.getvalue()


class Layout:
    def __init__(self, folder):
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)

    def blob(self, data, kind):
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def json(self, value, kind):
        return self.blob(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), kind)


def write(folder, root, tag):
    layout = Layout(folder)
    packed = layout.blob(gzip.compress(root, 6, mtime=0), "layer.v1.tar+gzip")
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    architecture = ARCHITECTURES[os.uname().machine]
    config = layout.json({
        "architecture": architecture, "os": "linux", "created": created,
        "config": {
            "User": f"{USER}:{USER}", "WorkingDir": "/", "StopSignal": "SIGTERM",
            "Entrypoint": ["/usr/bin/reprise"], "Cmd": COMMAND,
            "Env": ["PATH=/usr/bin", "HOME=/var/cache/reprise", "REPRISE_CACHE=/var/cache/reprise"],
            "ExposedPorts": {"30000/tcp": {}}, "Volumes": {"/models": {}, "/var/cache/reprise": {}},
            "Labels": {"org.opencontainers.image.title": "Reprise", "org.opencontainers.image.version": version(),
                       "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(root).hexdigest()}"]},
        "history": [{"created": created, "created_by": "tools/make_oci.py"}],
    }, "config.v1+json")
    manifest = layout.json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                            "config": config, "layers": [packed]}, "manifest.v1+json")
    manifest["platform"] = {"architecture": architecture, "os": "linux"}
    manifest["annotations"] = {"org.opencontainers.image.ref.name": tag}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}
    (folder / "index.json").write_text(json.dumps(index, sort_keys=True) + "\n")
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}\n')
    return manifest["digest"]


def write_archive(folder, file):
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size, entry.mtime, entry.mode = path.stat().st_size, EPOCH, 0o644
            with open(path, "rb") as data:
                tar.addfile(entry, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="a folder, which is replaced if it is a layout")
    parser.add_argument("--archive", type=pathlib.Path, help="the same as one tar file")
    parser.add_argument("--tag", default=version())
    parser.add_argument("--most-bytes", type=int, default=MOST_BYTES, help="a binary with the CUDA backend is larger")
    options = parser.parse_args()
    if options.out.exists():
        if not (options.out / "oci-layout").is_file():
            sys.exit(f"{options.out} is there, and is no image layout")
        shutil.rmtree(options.out)
    digest = write(options.out, layer(content(options.binary)), options.tag)
    size = sum(p.stat().st_size for p in options.out.rglob("*") if p.is_file())
    print(f"{digest} {options.out} ({size / 1e6:.1f} MB)")
    if size > options.most_bytes:
        sys.exit(f"{options.out} has {size} bytes; at most {options.most_bytes} are allowed")
    if options.archive:
        write_archive(options.out, options.archive)
        print(options.archive)


if __name__ == "__main__":
    main()
