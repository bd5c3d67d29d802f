#!/usr/bin/env python3
"""Writes share/reprise/grafana/reprise.json, the dashboard of Grafana. tests/packages/dashboard_test.py holds them equal,
and finds every metric in a running server.

  tools/make_dashboard.py [--check]
"""
import json
import pathlib
import sys

FILE = pathlib.Path(__file__).resolve().parent.parent / "share/reprise/grafana/reprise.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OURS = '{model_name="$model_name",instance=~"$instance"}'


def rate(metric, by=""):
    text = f"rate({metric}{OURS}[$__rate_interval])"
    return f"sum by ({by}) ({text})" if by else f"sum({text})"


def total(metric):
    return f"sum({metric}{OURS})"


def quantile(q, metric):
    return f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{OURS}[$__rate_interval])))"


def percentiles(metric):
    return [(quantile(q, metric), f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)]


# (row, [(title, unit of Grafana, [(expression, legend)])])
ROWS = [
    ("Load", [
        ("Requests", "short", [(total("vllm:num_requests_running"), "running"), (total("vllm:num_requests_waiting"), "waiting")]),
        ("Requests that ended, a second", "reqps", [(rate("vllm:request_success_total", "finished_reason"), "{{finished_reason}}")]),
        ("Connections", "short", [(total("reprise:http_connections"), "open")]),
        ("Time of a step", "s", percentiles("reprise:step_seconds")),
        ("Idle time of the device between steps", "s", percentiles("reprise:host_gap_seconds")),
    ]),
    ("Latency", [
        ("Time to the first token", "s", percentiles("vllm:time_to_first_token_seconds")),
        ("Time between tokens", "s", percentiles("vllm:inter_token_latency_seconds")),
        ("Whole request", "s", percentiles("vllm:e2e_request_latency_seconds")),
        ("Time in the queue", "s", percentiles("vllm:request_queue_time_seconds")),
    ]),
    ("Tokens", [
        ("Tokens a second", "short", [(rate("vllm:prompt_tokens_total"), "prompt"), (rate("vllm:generation_tokens_total"), "generated")]),
        ("Tokens of a prompt", "short", percentiles("vllm:request_prompt_tokens")),
        ("Tokens of an answer", "short", percentiles("vllm:request_generation_tokens")),
        ("Tokens of a step", "short", percentiles("vllm:iteration_tokens_total")),
    ]),
    ("KV cache and prefixes", [
        ("KV pages that requests hold", "percentunit", [(f"avg(vllm:kv_cache_usage_perc{OURS})", "used")]),
        ("KV pages", "short", [(total("reprise:kv_pages"), "all"), (total("reprise:kv_pages_free"), "free"),
                               (total("reprise:kv_pages_cached"), "prefixes")]),
        ("Prompt tokens found in the cache", "percentunit", [
            (f"{rate('vllm:prefix_cache_hits_total')} / {rate('vllm:prefix_cache_queries_total')}", "found")]),
        ("Pages evicted, requests preempted", "short", [(rate("reprise:kv_pages_evicted_total"), "pages a second"),
                                                        (rate("vllm:num_preemptions_total"), "requests a second")]),
        ("Memory", "bytes", [(total("reprise:weight_bytes"), "weights"), (total("reprise:kv_cache_bytes"), "KV cache"),
                             (total("reprise:graph_memory_bytes"), "graphs")]),
    ]),
    ("Graphs", [
        ("Replays a second", "short", [(rate("reprise:graph_replays_total", "phase, mode"), "{{phase}}, {{mode}}")]),
        ("Steps without a graph, a second", "short", [(rate("reprise:graph_fallback_total", "phase, reason"), "{{phase}}: {{reason}}")]),
        ("Padded rows a second", "short", [(rate("reprise:graph_padding_tokens_total", "phase"), "{{phase}}")]),
        ("Checked replays", "short", [(rate("reprise:graph_verified_total"), "checked"),
                                      (rate("reprise:graph_verify_failures_total"), "that differed")]),
        ("Tokens that the host drew, a second", "short", [(rate("reprise:host_draws_total", "reason"), "{{reason}}"),
                                                          (rate("reprise:device_draws_total"), "drawn by the device")]),
    ]),
    ("Keys", [
        ("Requests a second", "reqps", [(rate("reprise:key_requests_total", "key, status"), "{{key}}, {{status}}")]),
        ("Tokens a second", "short", [(rate("reprise:key_tokens_total", "key, kind"), "{{key}}, {{kind}}")]),
        ("Refused by a limit, a second", "reqps", [(rate("reprise:rate_limited_total", "key, limit"), "{{key}}, {{limit}}")]),
    ]),
    ("Speculation", [
        ("Drafts that came true", "percentunit", [
            (f"{rate('vllm:spec_decode_num_accepted_tokens_total')} / {rate('vllm:spec_decode_num_draft_tokens_total')}", "accepted")]),
        ("Tokens that a step gives a sequence", "short", [(f"avg(sglang:spec_accept_length{OURS})", "tokens")]),
        ("Steps without drafts, a second", "short", [(rate("reprise:spec_off_total", "reason"), "{{reason}}")]),
    ]),
    ("Errors", [
        ("Responses a second", "reqps", [(rate("reprise:http_responses_total", "status"), "{{status}}")]),
        ("Steps that failed", "short", [(rate("reprise:failed_steps_total"), "failed")]),
        ("Clients dropped because they did not read", "short", [(rate("reprise:http_dropped_total"), "dropped")]),
        ("Reloads", "short", [(rate("reprise:config_reloads_total", "result"), "{{result}}")]),
        ("Spans of traces, a second", "short", [(rate("reprise:otlp_sent_total"), "sent"),
                                                (rate("reprise:otlp_dropped_total"), "dropped")]),
    ]),
]


def variable(name, label, query, **more):
    return {"type": "query", "name": name, "label": label, "datasource": SOURCE, "refresh": 2, "sort": 1,
            "query": {"query": query, "refId": name}, "definition": query, **more}


def dashboard():
    panels, y, number = [], 0, 0
    for row, charts in ROWS:
        number += 1
        panels.append({"id": number, "type": "row", "title": row, "collapsed": False, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        for i, (title, unit, queries) in enumerate(charts):
            number += 1
            panels.append({
                "id": number, "type": "timeseries", "title": title, "datasource": SOURCE,
                "gridPos": {"h": 8, "w": 8, "x": 8 * (i % 3), "y": y + 8 * (i // 3)},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
                "targets": [{"refId": chr(ord("A") + q), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
                            for q, (expr, legend) in enumerate(queries)],
            })
        y += 8 * ((len(charts) + 2) // 3)
    return {
        "uid": "reprise", "title": "Reprise", "tags": ["reprise"], "schemaVersion": 38, "version": 1, "editable": True,
        "refresh": "10s", "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "annotations": {"list": []},
        "templating": {"list": [
            {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1},
            variable("model_name", "Model", "label_values(vllm:num_requests_running, model_name)"),
            variable("instance", "Instance", 'label_values(vllm:num_requests_running{model_name="$model_name"}, instance)',
                     includeAll=True, multi=True, current={"text": "All", "value": "$__all"}),
        ]},
        "panels": panels,
    }


def main():
    text = json.dumps(dashboard(), indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        if not FILE.exists() or FILE.read_text() != text:
            sys.exit(f"{FILE.name} is not what tools/make_dashboard.py writes; run it")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        FILE.write_text(text)


if __name__ == "__main__":
    main()
