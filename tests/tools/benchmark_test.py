"""tools/benchmark.py: when it refuses to measure, and what it makes of a recorded run."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import benchmark  # noqa: E402
import check_scoreboard  # noqa: E402

LIMITS = {"read_GBps_all": 40.0, "fp32_gflops": 400.0, "bf16_gflops": 200.0, "int8_gops": 1600.0}


def cell(ours, peer, **more):
    return {"ours": ours, "peer": peer, "pct_bandwidth": None, "pct_peak": None, **more}


def section(data, before=40.0, after=41.0, **more):
    return {"date": "2026-01-02", "commands": ["tools/measure_peers.py A=$SHAPES/a"], "before": {"read_GBps_all": before},
            "after": {"read_GBps_all": after}, "steady": True, "beside": [], "data": data, **more}


# 1 GB of bf16 weights, no keys: at 40 GB/s 40 steps a second; 2 flop for each of 0.5e9 weights and sequence: at 400
# GFLOP/s 400 sequences a second, so the roof bends at batch 10.
ROW = {"weight_bytes": 1e9, "kv_bytes": 0}
PEERS = {"name": "A", "forms": {"bf16": {"limits": LIMITS, "cells": {
    "prefill 512": cell(300, 150, pct_peak=75.2),
    "batch 1": cell(36, 18, pct_bandwidth=90.0, row=ROW),
    "batch 20": cell(200, 100, pct_bandwidth=25.0, row=ROW)}}}}


def report(sections):
    return {"commit": "0123abc", "machine": {"cpu": "A processor", "isa": "avx512", "threads": 2}, "sections": sections}


class OtherLoad(unittest.TestCase):
    def test_a_quiet_machine_is_measured(self):
        self.assertEqual(benchmark.other_load(0.1, 0.01), [])
        self.assertEqual(benchmark.other_load(None, 0.01), [])

    def test_each_kind_of_load_is_named(self):
        self.assertIn("the load average is 3.20", benchmark.other_load(3.2, 0.01)[0])
        self.assertIn("55 % of the processors are busy", benchmark.other_load(None, 0.55)[0])
        self.assertEqual(len(benchmark.other_load(3.2, 0.55)), 2)

    def test_busy_time_is_all_but_idle_and_waiting(self):
        # user nice system idle iowait irq softirq steal guest guest_nice
        self.assertEqual(benchmark.busy_share("cpu 100 0 0 100 0 0 0 0 0 0", "cpu 110 5 5 160 20 0 0 0 10 0"), 0.2)
        self.assertEqual(benchmark.busy_share("cpu 0 0 0 0 0 0 0 0", "cpu 0 0 0 0 0 0 0 0"), 0)

    def test_measure_refuses(self):
        with tempfile.TemporaryDirectory() as out, mock.patch.object(benchmark, "measured_busy", lambda: 0.9), \
                self.assertRaises(SystemExit) as refused:
            benchmark.main(["measure", "--shapes", out, "--out", f"{out}/made", "--only", "fused"])
        self.assertIn("other load: ", str(refused.exception))
        self.assertFalse(pathlib.Path(out, "made").exists())

    def test_load_that_comes_later_ends_the_run(self):
        run = mock.Mock(args=mock.Mock(beside_load=False))
        with mock.patch.object(benchmark, "measured_busy", lambda: 0.9), self.assertRaises(SystemExit) as refused:
            benchmark.measure_section(run, "fused")
        self.assertIn("fused: other load", str(refused.exception))
        run.limits.assert_not_called()


class Sections(unittest.TestCase):
    def measured(self, bandwidths):
        """A section between probes that find these bandwidths."""
        probes = iter(bandwidths)
        run = mock.Mock(args=mock.Mock(beside_load=False), commands=[])
        run.limits.side_effect = lambda: {"read_GBps_all": next(probes)}
        run.ours.return_value = {"rows": []}
        with mock.patch.object(benchmark, "measured_busy", lambda: 0.0), contextlib.redirect_stderr(io.StringIO()):
            return benchmark.measure_section(run, "fused"), run.ours.call_count

    def test_a_steady_one_is_measured_once(self):
        found, times = self.measured([40, 36])
        self.assertEqual((found["steady"], times), (True, 1))

    def test_one_across_a_change_is_measured_again(self):
        found, times = self.measured([60, 35, 34, 35])
        self.assertEqual((found["steady"], times, found["before"]["read_GBps_all"]), (True, 2, 34))
        found, times = self.measured([60, 35, 34, 60])
        self.assertEqual((found["steady"], times), (False, 2))

    def test_unknown_sections_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            benchmark.main(["measure", "--shapes", ".", "--only", "nonsense"])
        self.assertIn('no section "nonsense"; there are: qwen3', said.getvalue())

    def test_the_binary_must_be_of_the_commit(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "file").write_text("text\n")
            git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b"]
            for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a"]):
                subprocess.run([*git, *command], check=True)
            commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True,
                                    text=True).stdout.strip()
            self.assertEqual(benchmark.commit_of(root, f"reprise 1\ncommit {commit}"), commit)
            with self.assertRaises(SystemExit) as refused:
                benchmark.commit_of(root, "reprise 1\ncommit feedbee")
            self.assertIn("the binary is of commit feedbee", str(refused.exception))
            (root / "file").write_text("changed\n")
            with self.assertRaises(SystemExit) as refused:
                benchmark.commit_of(root, f"commit {commit}")
            self.assertIn("figures belong to a commit", str(refused.exception))


class Speculation(unittest.TestCase):
    def answers(self, tokens=lambda flags: [1, 2]):
        """The flags of every run, in order."""
        asked = []

        def ours(*flags):
            flags = list(map(str, flags))
            asked.append(flags)
            drafts = {"drafts": 2, "draft_tokens": 5, "accepted_tokens": 3}
            fast = flags[-1] == "NGRAM"
            return {"output": {"token_ids": tokens(flags)}, "timing": {"decode_tok_s": 300 if fast else 200},
                    "speculative": drafts if fast else None}

        run = mock.Mock(args=mock.Mock(rounds=2), shapes=pathlib.Path("shapes"), ours=ours)
        return asked, benchmark.measure_speculation(run)

    def test_which_goes_first_alternates(self):
        asked, _ = self.answers()
        ways = [flags[-1] for flags in asked]
        self.assertEqual(ways[:8], ["none", "NGRAM", "NGRAM", "none"] * 2)
        pairs = list(zip(asked[::2], asked[1::2]))
        for first, second in pairs:
            self.assertEqual((first[:-1], {first[-1], second[-1]}), (second[:-1], {"none", "NGRAM"}))

    def test_new_text_has_five_rounds_and_made_up_weights_too(self):
        asked, out = self.answers()
        rounds = {}
        for r in out:
            key = r["form"], r["text"], r["prompt"]
            rounds[key] = rounds.get(key, 0) + (r["way"] == "none")
        self.assertEqual({n for (_, text, _), n in rounds.items() if text in ("plain", "random")}, {5})
        self.assertEqual({n for (_, text, _), n in rounds.items() if text not in ("plain", "random")}, {2})
        made_up = [flags for flags in asked if "dummy" in flags]
        self.assertEqual(len(made_up), 2 * 5 * 6)
        ids = made_up[0][made_up[0].index("--prompt-ids") + 1].split(",")
        self.assertEqual(len(set(ids)), 64)

    def test_another_answer_ends_it(self):
        with self.assertRaises(SystemExit) as ended:
            self.answers(lambda flags: [len(flags[-1])])
        self.assertIn("drafts have changed the answer", str(ended.exception))

    def test_acceptance_has_both_widths_of_both_forms(self):
        row = {"plain_decode_tok_s": 20.0, "decode_tok_s": 70.0, "speed_up": 3.5, "tokens_per_step": 3.8,
               "accepted_per_position": [3, 2, 1], "drafts": 4}
        run = mock.Mock(args=mock.Mock(rounds=3))
        run.one_batch.return_value = [row]
        lines = benchmark.show_acceptance(benchmark.measure_acceptance(run))
        self.assertEqual(len(lines), 2 + 4)
        self.assertEqual(lines[2], "| bf16 | 8 | 20.0 | 70.0 | 3.50 x (2 x) | 3.8 | 3, 2, 1 of 4 steps |")
        for call in run.one_batch.call_args_list:
            self.assertIn(0.8, call.args)
            self.assertEqual(call.args[call.args.index("--repeat") + 1], 5)


class OfTheLibrary(unittest.TestCase):
    """Sections whose scripts open the library and write their rows as JSON."""

    def run_of(self, folder, rows, **args):
        """A run whose scripts measure nothing: the one that is called writes these rows."""
        run = benchmark.Run(mock.Mock(binary=f"{folder}/bin/reprise", shapes=f"{folder}/shapes", out=pathlib.Path(folder),
                                      models=None, rounds=3, **{"peers": None, **args}))

        def write(command, **_):
            pathlib.Path(command[command.index("--json") + 1]).write_text(json.dumps(rows))
            return mock.Mock(returncode=0, stdout="")

        patched = mock.patch.object(benchmark.subprocess, "run", write)
        patched.start()
        self.addCleanup(patched.stop)
        return run

    def test_lora(self):
        with tempfile.TemporaryDirectory() as folder:
            rates = {"no slots": 1238.0, "slots, none used": 1240.0, "one adapter": 619.0, "an adapter a row": 47.5}
            run = self.run_of(folder, {"A": [{"batch": 1, **rates}, {"batch": 16, **rates}]})
            lines = benchmark.show_lora(benchmark.measure_lora(run))
            self.assertEqual(run.commands, [
                "tools/measure_lora.py --library OUT/lib/libreprise.so.0 --batch-sizes 1,4,8,16 --rounds 5 --output-len 17 "
                "--adapters 8 SmolLM2-135M=$SHAPES/smollm2-135m --json OUT/measure_lora.json"])
        self.assertEqual(lines[0], "| tok/s, batch | no slots | slots, none used | one adapter for all rows | "
                         "an adapter a row, at most 8 |")
        self.assertEqual(lines[2:], ["| A, 1 | 1238 | 1240 (+0 %) | 619 (-50 %) | 47.5 (-96 %) |",
                                     "| 16 | 1238 | 1240 (+0 %) | 619 (-50 %) | 47.5 (-96 %) |"])

    def test_tower(self):
        row = {"dtype": "bfloat16", "side": 512, "patches": 1024, "seconds": 6.4, "operations": 768e9, "peak_gflops": 200.0}
        lines = benchmark.show_tower([row])
        self.assertEqual(lines[2], "| bf16 | 6,400 | 768 | 120 | 60 % of 200 |")

    def test_vectors(self):
        row = {"name": "reprise", "dtype": "int8", "ms": 240.4, "texts_s": 133.1, "cosine": 0.99815}
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("Not measured: there is no all-MiniLM-L6-v2",
                          benchmark.show_vectors(benchmark.measure_vectors(self.run_of(folder, [row])))[0])
            pathlib.Path(folder, "models/all-MiniLM-L6-v2").mkdir(parents=True)
            run = self.run_of(folder, [row, {**row, "name": "transformers", "dtype": "float32"}], peers="/some/python")
            lines = benchmark.show_vectors(benchmark.measure_vectors(run))
            self.assertIn("--rounds 9 --peers PYTHON $MODELS/all-MiniLM-L6-v2", run.commands[0])
        self.assertEqual(lines[2:], ["| Reprise | W8A8 | 240 | 133 | 0.99815 |",
                                     "| transformers | fp32 | 240 | 133 | 0.99815 |"])


class OfOneBinary(unittest.TestCase):
    """Sections that ask the binary alone."""

    def test_ops_of_a_decoder_and_of_other_models(self):
        asked = []

        def ours(*flags):
            asked.append(flags)
            return {"rows": [{"op": flags[-1], "shape": "[1]", "fused_us": 2.0, "limit_us": 1.0}]}

        lines = benchmark.show_ops(benchmark.measure_ops(mock.Mock(ours=ours)))
        self.assertEqual([flags[-2:] for flags in asked[:2]], [("--model", "Qwen3-0.6B"), ("--filter", "gated_delta")])
        self.assertEqual(lines[3], "| `gated_delta` | [1] | 2.00 |  |  | 50 % |")

    def test_parts_of_a_prompt(self):
        asked = []

        def ours(*flags):
            asked.append("w8a8_int8" in flags)
            ops = [{"op": "linear", "span_us": 200e3}, {"op": "linear_w8a8_dynamic", "span_us": 40e3},
                   {"op": "paged_attention", "span_us": 50e3}, {"op": "rms_norm", "span_us": 1e3}]
            return {"step_us": 381e3, "ops": ops}

        run = mock.Mock(args=mock.Mock(rounds=2), shapes=pathlib.Path("shapes"), ours=ours)
        lines = benchmark.show_prompt_parts(benchmark.measure_prompt_parts(run))
        self.assertEqual(asked, [False, True, True, False])
        self.assertEqual(lines, ["| milliseconds | whole step | linear layers | attention |", "|---|---|---|---|",
                                 "| bf16 | 381, 381 | 240, 240 | 50.0, 50.0 |",
                                 "| W8A8 | 381, 381 | 240, 240 | 50.0, 50.0 |"])


class BlockActivations(unittest.TestCase):
    def measured(self):
        """Each run gives ten times the number of runs before it; what ran stands in `ways`."""
        self.ways = []

        def ours(*flags):
            self.ways.append(flags[flags.index("--block-activations") + 1])
            speed = 10.0 * len(self.ways)
            return {"rows": [{"batch_size": int(batch), "prefill_tok_s": speed, "decode_tok_s": speed, "pct_peak": 51.6}
                             for batch in str(flags[flags.index("--batch-size") + 1]).split(",")]}

        def output(command):
            self.ways.append("openvino")
            return 'a notice\n{"version": "1", "prefill": {"512": 40.0}}\n'

        run = mock.Mock(args=mock.Mock(rounds=2), ours=ours, output=output, peer_file=lambda shape, form: f"{form}.gguf")
        return benchmark.measure_block_activations(run)

    def test_the_ways_take_turns_on_each_file(self):
        data = self.measured()
        self.assertEqual([e["form"] for e in data], ["Q8_0", "Q4_K_M", "Q4_0"])
        once = ["float", "float", "int8", "int8", "openvino", "int8", "int8", "openvino", "float", "float"]
        self.assertEqual(self.ways, 3 * once)

    def test_both_tables(self):
        lines = benchmark.show_block_activations(self.measured())
        self.assertEqual(lines[:3], [
            "| prefill 512 | float | int8 | share of the int8 peak | OpenVINO | int8 x float | int8 x OpenVINO |",
            "|---|---|---|---|---|---|---|",
            "| Q8_0 | 10.0, 90.0 | 30.0, 60.0 | 52 % | 40.0, 40.0 | 0.67 | 1.50 |"])
        self.assertEqual(lines[6:9], ["| decode, batch | 1 | 4 | 16 | 64 |", "|---|---|---|---|---|",
                                      "| Q8_0, float | 20.0, 100 | 20.0, 100 | 20.0, 100 | 20.0, 100 |"])


class Roof(unittest.TestCase):
    def test_files_of_several_formats_have_none(self):
        data = {"forms": {"q4_k_m": PEERS["forms"]["bf16"], "bf16": PEERS["forms"]["bf16"]}}
        self.assertEqual(list(benchmark.roof_shares(data)), ["bf16"])

    def test_bytes_bound_small_batches_and_arithmetic_large_ones(self):
        self.assertAlmostEqual(benchmark.roof_tok_s("bf16", 1, ROW, LIMITS), 40)
        self.assertAlmostEqual(benchmark.roof_tok_s("bf16", 10, ROW, LIMITS), 400)
        self.assertAlmostEqual(benchmark.roof_tok_s("bf16", 20, ROW, LIMITS), 400)
        self.assertAlmostEqual(benchmark.roof_tok_s("w8a8", 1, {"weight_bytes": 1e9, "kv_bytes": 1e9}, LIMITS), 20)
        self.assertAlmostEqual(benchmark.roof_tok_s("w8a8", 64, ROW, LIMITS), 800)

    def test_ours_and_the_peer_stand_under_the_same_roof(self):
        (first, second), = benchmark.roof_shares(PEERS).values()
        self.assertEqual(first[0], 1)
        self.assertAlmostEqual(first[1], 90)
        self.assertAlmostEqual(first[2], 45)
        self.assertAlmostEqual(second[1], 50)

    def test_the_picture_is_xml_and_names_its_points(self):
        picture = benchmark.draw_roof("A", benchmark.roof_shares(PEERS), "a machine")
        titles = [e.text for e in xml.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(titles, ["bf16, batch 1: 90 %, llama.cpp 45 %", "bf16, batch 20: 50 %, llama.cpp 25 %"])


class Show(unittest.TestCase):
    def page(self, sections):
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            recorded = pathlib.Path(out) / "benchmark.json"
            recorded.write_text(json.dumps(report(sections)))
            benchmark.main(["show", str(recorded)])
            self.pictures = sorted(p.name for p in pathlib.Path(out).glob("*.svg"))
            return pathlib.Path(out, "benchmark.md").read_text()

    def test_peers(self):
        page = self.page({"qwen3": section(PEERS)})
        self.assertIn("### Qwen3-0.6B compared with llama.cpp\n", page)
        self.assertIn("| A, tok/s | bf16 | x |\n|---|---|---|\n| prefill 512 | 300 (75 %) | 2.00 |\n"
                      "| batch 1 | 36.0 (90 %) | 2.00 |\n", page)
        self.assertEqual(self.pictures, ["roof-A.svg"])

    def test_sections_stand_as_the_page_of_figures_wants_them(self):
        page = self.page({"qwen3": section(PEERS)})
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "page.md").write_text(page)
            self.assertEqual(check_scoreboard.check_figures(pathlib.Path(folder), "page.md"), [])

    def test_what_weakens_a_figure_is_said(self):
        self.assertNotIn("mean little", self.page({"qwen3": section(PEERS)}))
        self.assertIn("60 GB/s before and 35 GB/s after, so shares of it mean little",
                      self.page({"qwen3": section(PEERS, 60, 35, steady=False)}))
        self.assertIn("Measured beside other load.", self.page({"qwen3": section(PEERS, beside=["a"])}))

    def test_every_kind_of_table(self):
        row = {"batch_size": 8, "prefill_tok_s": 1234.5, "decode_tok_s": 56.78, "pct_peak": 68.4, "pct_bandwidth": None}
        op = {"op": "silu_mul", "shape": "[1, 2]", "fused_us": 10.0, "unfused_us": 20.0, "ratio": 0.5, "limit_us": 7.0}
        modes = {"A": {"rows": {"eager": [row], "whole": [{**row, "decode_tok_s": 113.56}]}}}
        ways = {"prompt": 512, "form": "bf16", "absorbed": [row, row], "expanded": [{**row, "prefill_tok_s": 2469.0}] * 2}
        sets = [{"label": "C, W8A8", "sets": {
            "avx2": [row, {**row, "decode_tok_s": 60.0}], "avx512": [{**row, "prefill_tok_s": 2469.0, "decode_tok_s": 90.0}]}}]
        blocks = {"ways": {"amx": [op, {**op, "fused_us": 12.0}], "amx-blocks": [{**op, "fused_us": 4.0}]}}
        score = {"questions": 200, "right": 1, "no_number": 11, "same_got": 118, "same_text": 89}
        page = self.page({
            "experts": section([{"label": "B, bf16", "rows": [row]}]), "fused": section([op]), "modes": section(modes),
            "expanded": section([ways]), "sampled": section({"greedy": [row], "sampled": [row]}),
            "onednn": section({"lines": ["| a |", "|---|", "| 1 |"]}), "sets": section(sets), "block-sets": section(blocks),
            "quantised": section([{"label": "bf16", "perplexity": 6.0, **score},
                                  {"label": "int8", "perplexity": 6.3, **score}])})
        for line in ("| B, bf16 | 8 | 1234 | 68 % | 56.8 |  |", "| `silu_mul` | [1, 2] | 10.0 | 20.0 | 0.50 | 70 % |",
                     "| A, 8 | decode | 56.8 | 114 | 2.00 x |", "| 512 | bf16 | 1234, 1234 | 68 %, 68 % | 2469, 2469 | "
                     "68 %, 68 % | 2.00 |", "| median | 56.8 | 56.8 | 1.00 x (0.9 x) |", "| 1 |",
                     "| int8 | 6.3000 | +5.00 % | 1 | 11 | 118 | 89 |",
                     "| C, W8A8 | 8 | 1234 | 2469 | 2.00 | 56.8 to 60.0 | 90.0 | 1.50 |",
                     "| `silu_mul` | [1, 2] | 10.0 | 4.00 | 2.50 |"):
            with self.subTest(line=line):
                self.assertIn(line + "\n", page)
        self.assertEqual(self.pictures, [])
        header = next(line for line in page.splitlines() if "`avx512`" in line)
        self.assertEqual(header, "|  | batch | prefill tok/s, `avx2` | prefill tok/s, `avx512` | best / best | "
                         "decode tok/s, `avx2` | decode tok/s, `avx512` | best / best |")

    def test_a_machine_without_tiles_says_so(self):
        run = mock.Mock()
        run.limits.return_value = {"isa": ["baseline", "avx2", "avx512"]}
        data = benchmark.measure_block_sets(run)
        run.ours.assert_not_called()
        self.assertIn("Not measured: this processor has no tile registers.\n", self.page({"block-sets": section(data)}))


class InTurn(unittest.TestCase):
    def test_each_way_once_a_round_and_first_in_turn(self):
        self.assertEqual(list(benchmark.in_turn(3, ["a", "b"])), ["a", "b", "b", "a", "a", "b"])

    def test_the_best_two_sets_run_the_same_work(self):
        run = mock.Mock(args=mock.Mock(rounds=2))
        run.limits.return_value = {"isa": ["baseline", "avx512", "amx"]}
        run.one_batch.side_effect = lambda shape, *flags: [{"flags": flags}]
        for entry in benchmark.measure_sets(run):
            self.assertEqual(list(entry["sets"]), ["avx512", "amx"])
            for name, rows in entry["sets"].items():
                self.assertEqual(len(rows), 2)
                for row in rows:
                    self.assertEqual(row["flags"][row["flags"].index("--isa") + 1], name)


if __name__ == "__main__":
    unittest.main()
