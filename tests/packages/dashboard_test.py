#!/usr/bin/env python3
"""The dashboard of Grafana and the rules of Prometheus: every metric and label in them is one of a running server.

    dashboard_test.py --reprise FILE --model FOLDER
"""
import argparse
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from support import ROOT, Server, ask, run

GRAFANA = ROOT / "share/reprise/grafana"
# Prometheus's own metric, and the labels that it adds.
OF_PROMETHEUS = {"up"}
LABELS_OF_PROMETHEUS = {"instance", "job", "le"}
options = None


def expressions():
    """(where, expression)"""
    dashboard = json.loads((GRAFANA / "reprise.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]
    for rule, expression in re.findall(r"- alert: (\w+)\n +expr: (?:>-\n)?(.*?)\n +(?:for|labels):",
                                       (GRAFANA / "alerts.yml").read_text(), re.S):
        yield rule, expression


def metrics_in(expression):
    """{metric: labels that the expression asks of it}"""
    bare = re.sub(r'"[^"]*"', '""', expression)
    grouped = {label for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", bare) for label in re.split(r",\s*", labels)}
    out = {}
    for name, _, labels in re.findall(r"\b((?:vllm|sglang|reprise):\w+|up\b)(\{([^}]*)\})?", bare):
        out.setdefault(name, set()).update(re.findall(r"(\w+)\s*=", labels))
    for wanted in out.values():
        wanted |= grouped
    return out


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            key = run(options.reprise, "key", "new", "ada", "--api-keys-file", keys, "--requests-per-minute", 1).stdout.strip()
            # A chunk that no captured size covers runs without a graph.
            with Server(options.reprise, "serve", "--model-path", options.model, "--load-format", "dummy", "--port", 0,
                        "--threads", 1, "--plan-cache", "off", "--speculative-algorithm", "NGRAM", "--api-keys-file", keys,
                        "--graph-prefill", "off") as server:
                url = server.url()
                body = {"prompt": "abcabcabc", "max_tokens": 8, "temperature": 0}
                statuses = [ask(f"{url}/v1/completions", body, key)[0] for _ in range(2)]
                status, text = ask(f"{url}/metrics", key=key)
        assert statuses == [200, 429] and status == 200, (statuses, status)
        cls.labels, cls.kinds = {}, dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
        for name, labels in re.findall(r"^([\w:]+)\{(.*)\} ", text, re.M):
            cls.labels.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))

    def test_each_metric_is_there_with_its_labels(self):
        seen = set()
        for where, expression in expressions():
            found = metrics_in(expression)
            self.assertTrue(found, where)
            for name, labels in found.items():
                if name in OF_PROMETHEUS:
                    continue
                self.assertIn(name, self.labels, where)
                # A label of the expression belongs to one of its metrics.
                known = set.union(*(self.labels.get(n, set()) for n in found)) | LABELS_OF_PROMETHEUS
                self.assertLessEqual(labels, known, f"{where}: {name}")
                seen.add(name)
        self.assertGreater(len(seen), 40)

    def test_rates_are_of_counters(self):
        for where, expression in expressions():
            for name in re.findall(r"\b(?:rate|increase)\(([\w:]+)", expression):
                family = re.sub(r"_(bucket|count|sum)$", "", name)
                kind = self.kinds.get(name) or self.kinds[family]
                self.assertIn(kind, ("counter", "histogram"), f"{where}: {name}")

    def test_the_file_is_what_its_script_writes(self):
        run(sys.executable, ROOT / "tools/make_dashboard.py", "--check")
        dashboard = json.loads((GRAFANA / "reprise.json").read_text())
        self.assertEqual(dashboard["uid"], "reprise")
        self.assertEqual([v["name"] for v in dashboard["templating"]["list"]], ["datasource", "model_name", "instance"])
        ids = [p["id"] for p in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_prometheus_takes_the_rules(self):
        if not shutil.which("promtool"):
            self.skipTest("there is no promtool (Debian: prometheus)")
        run("promtool", "check", "rules", GRAFANA / "alerts.yml")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--reprise", required=True)
    parser.add_argument("--model", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
