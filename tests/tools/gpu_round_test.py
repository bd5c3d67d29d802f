"""tools/gpu_round.sh and tools/gpu_report.py with programs that only look like those they call: no GPU is needed."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = {"batch_size": 16, "prefill_tok_s": 40800.0, "decode_tok_s": 1860.0, "step_ms_p50": 8.57, "achieved_GBps": 2050.0,
       "pct_bandwidth": 68.0, "gap_us": 1.3}
# Prints its arguments, and where kernels are tested; a bench also its row.
PROGRAM = """#!/bin/sh
echo "$0 $@ $REPRISE_KERNELS_ON"
[ "$1 $2" != "bench one-batch" ] || echo '{"limits": {}, "rows": [%s]}'
"""


class Round(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("bin", "out", "path"):
            (self.root / name).mkdir()
        for name in ("reprise", "device_tests", "simt_tests"):
            self.program(f"bin/{name}", PROGRAM % json.dumps(ROW))
        self.program("path/nvidia-smi", "#!/bin/sh\necho 'a GPU, 1.2'\n")

    def program(self, name, text):
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def round(self, *steps, seconds="60"):
        env = {**os.environ, "PATH": f"{self.root}/path:/usr/bin:/bin", "REPRISE_ROUND_SECONDS": seconds}
        done = subprocess.run([ROOT / "tools/gpu_round.sh", self.root / "bin", self.root / "out", *steps], env=env,
                              capture_output=True, text=True, timeout=60)
        return done, json.loads((self.root / "out/round.json").read_text())

    def report(self, *rounds):
        paths = []
        for i, r in enumerate(rounds):
            paths.append(self.root / f"{i}.json")
            paths[-1].write_text(json.dumps(r))
        return subprocess.run([sys.executable, ROOT / "tools/gpu_report.py", *paths], capture_output=True, text=True)

    def test_a_whole_round(self):
        done, found = self.round()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(found["machine"], "a GPU, 1.2")
        steps = {s["step"]: s for s in found["steps"]}
        self.assertEqual(steps["conformance"]["status"], 0)
        self.assertIn("skipped", steps["probes"], "nothing was packed")
        self.assertIn("bench-0.6b-whole", found["results"])
        self.assertIn("--gtest_filter=*cuda*", (self.root / "out/conformance.log").read_text())
        kernels = (self.root / "out/kernels.log").read_text()
        self.assertIn("CudaKernels.*:", kernels)
        self.assertTrue(kernels.endswith(" gpu\n"), kernels)
        self.assertTrue((self.root / "out/goldens.log").read_text().endswith(" \n"), "those are told by their names")
        told = self.report(found)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("| probes | left out: tools/gpu_pack.sh found no nvcc to compile them with | |", told.stdout)
        self.assertIn("| 8b | 16 | 40,800 | 1,860 | 8.57 | 2,050 | 68 % | 1.3 |", told.stdout)

    def test_a_step_that_fails(self):
        self.program("bin/device_tests", "#!/bin/sh\necho '[  FAILED  ] a test'\nexit 3\n")
        self.program("bin/cuda_probes", "#!/bin/sh\nexit 0\n")
        done, found = self.round("conformance", "probes")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL  conformance: status 3", done.stdout)
        self.assertIn("FAILED  ] a test", done.stdout)
        self.assertEqual([s["status"] for s in found["steps"]], [3, 0])

    def test_the_time_of_the_round(self):
        self.program("bin/device_tests", "#!/bin/sh\nsleep 20\n")
        done, found = self.round("conformance", "verify", seconds="6")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(found["steps"][0]["status"], 124)
        self.assertTrue(all(s["skipped"] == "the time of the round is over" for s in found["steps"][1:]))
        self.assertGreater(len(found["steps"]), 5)

    def test_a_step_that_nobody_knows(self):
        self.program("out/round.json", "{}")
        done, _ = self.round("conformence")
        self.assertEqual(done.returncode, 2)
        self.assertIn('step "conformence" is not known', done.stderr)

    def test_what_became_worse(self):
        _, found = self.round("bench")
        slower = json.loads(json.dumps(found))
        slower["results"]["bench-8b"]["rows"][0]["decode_tok_s"] = 1700.0
        told = self.report(slower, found)
        self.assertEqual(told.returncode, 1)
        self.assertIn("8b, batch 16: decode_tok_s 1860 before, 1700 now", told.stdout)
        self.assertEqual(self.report(found, found).returncode, 0)
        self.assertIn("of two machines", self.report({**found, "machine": "b"}, found).stderr)


if __name__ == "__main__":
    unittest.main()
