"use strict";
// The numbers of the live page, from GET /metrics.

// Prometheus' text form: name -> [{labels, value}].
function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    const m = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!m) continue;
    const labels = {};
    for (const [, name, value] of (m[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
      labels[name] = value.replace(/\\(.)/g, (_, c) => c === "n" ? "\n" : c);
    if (!out.has(m[1])) out.set(m[1], []);
    out.get(m[1]).push({labels, value: Number(m[3])});
  }
  return out;
}
const all = (metrics, name) => metrics.get(name) || [];
const one = (metrics, name) => all(metrics, name).reduce((sum, s) => sum + s.value, 0);

const SPAN = 300;      // seconds that the lines show
let history = [];      // what show() took from the metrics in that time, oldest first
let ready = false, gone = 0;

function lines(names, ids, peak, now) {
  const most = Math.max(1e-9, ...names.flatMap(n => history.map(h => h[n])));
  put(peak, "peak " + count(most < 1e-6 ? 0 : most));
  names.forEach((n, i) => at(ids[i]).setAttribute("points",
    history.map(h => (SPAN - (now - h.t)).toFixed(1) + "," + (97 - 94 * h[n] / most).toFixed(1)).join(" ")));
}

function rows(id, list) {
  at(id).replaceChildren(...list.map(cells => {
    const tr = element("tr");
    cells.forEach(([text, kind]) => tr.append(element("td", kind, text)));
    return tr;
  }));
}

const total = (metrics, name) => ({sum: one(metrics, name + "_sum"), n: one(metrics, name + "_count")});
// Mean of a histogram between two totals.
const mean = (from, to) => to.n > from.n ? time((to.sum - from.sum) / (to.n - from.n)) : "–";

function show(metrics) {
  const now = performance.now() / 1000;
  const h = {t: now, out: 0, read: 0, hit: 0, run: one(metrics, "vllm:num_requests_running"),
    wait: one(metrics, "vllm:num_requests_waiting"), made: one(metrics, "vllm:generation_tokens_total"),
    prompt: one(metrics, "vllm:prompt_tokens_total"), cached: one(metrics, "vllm:prompt_tokens_cached_total"),
    ttft: total(metrics, "vllm:time_to_first_token_seconds"), itl: total(metrics, "vllm:inter_token_latency_seconds")};
  const before = history.at(-1);
  if (before && h.made < before.made) history = [];  // the server was started again
  if (before && now > before.t) {
    h.out = Math.max(0, h.made - before.made) / (now - before.t);
    h.read = Math.max(0, h.prompt - before.prompt) / (now - before.t);
    h.hit = Math.max(0, h.cached - before.cached) / (now - before.t);
  }
  history.push(h);
  while (history.length && now - history[0].t > SPAN) history.shift();
  const minute = history.find(x => now - x.t <= 61) || h;

  const label = all(metrics, "vllm:num_requests_running")[0];
  if (label) { put("model", label.labels.model_name); document.title = label.labels.model_name + " – reprise"; }
  put("running", count(h.run));
  put("waiting", count(h.wait));
  put("rate", count(h.out));
  put("ttft", mean(minute.ttft, h.ttft));
  put("itl", mean(minute.itl, h.itl));
  put("preempted", count(one(metrics, "vllm:num_preemptions_total")));
  lines(["out"], ["line-out"], "peak-out", now);
  lines(["read", "hit"], ["line-in", "line-hit"], "peak-in", now);
  lines(["run", "wait"], ["line-run", "line-wait"], "peak-load", now);

  const pages = one(metrics, "reprise:kv_pages"), free = one(metrics, "reprise:kv_pages_free");
  const cached = one(metrics, "reprise:kv_pages_evictable"), used = pages - free - cached;
  at("bar-used").style.width = (pages ? 100 * used / pages : 0) + "%";
  at("bar-cached").style.width = (pages ? 100 * cached / pages : 0) + "%";
  put("key-used", `${count(used)} in use`);
  put("key-cached", `${count(cached)} in cached prefixes`);
  put("key-free", `${count(free)} free of ${count(pages)}`);
  const asked = one(metrics, "vllm:prefix_cache_queries_total"), hits = one(metrics, "vllm:prefix_cache_hits_total");
  put("hits", asked ? `Prefix cache: ${count(hits)} of ${count(asked)} prompt tokens found (${(100 * hits / asked).toFixed(1)} %), ` +
    `${count(one(metrics, "reprise:kv_pages_evicted_total"))} pages evicted` : "Prefix cache: nothing looked up yet");

  const replays = all(metrics, "reprise:graph_replays_total").filter(s => s.value > 0);
  const reasons = all(metrics, "reprise:graph_fallback_total").filter(s => s.value > 0);
  const steps = [...replays, ...reasons].reduce((sum, s) => sum + s.value, 0);
  replays.sort((a, b) => a.labels.phase.localeCompare(b.labels.phase) || a.labels.size - b.labels.size);
  rows("replays", replays.map(s => [[s.labels.phase], [s.labels.mode], [s.labels.size, "n"], [count(s.value), "n"],
    [(100 * s.value / steps).toFixed(1) + " %", "n"]]));
  reasons.sort((a, b) => b.value - a.value);
  rows("reasons", reasons.map(s => [[s.labels.phase], [s.labels.reason, "why"], [count(s.value), "n"]]));
  at("fallbacks").hidden = reasons.length === 0;
  put("graph-note", replays.length === 0 && reasons.length === 0 ? "No step has run yet." :
    `${several(one(metrics, "reprise:graph_padding_tokens_total"), "row")} of padding; capture took ` +
    `${time(one(metrics, "reprise:graph_capture_seconds"))}` + (reasons.length ? "" : "; every step was a replay"));
  const differ = one(metrics, "reprise:graph_verify_failures_total");
  const checked = one(metrics, "reprise:graph_verified_total"), failed = one(metrics, "reprise:failed_steps_total");
  at("verify").className = differ + failed > 0 ? "note bad" : "note";
  put("verify", (checked + differ > 0 ? `${several(checked, "replay")} checked against eager, ${count(differ)} differed`
    : "No replay is checked (--verify-replay)") + (failed > 0 ? `; ${several(failed, "step")} failed` : ""));
}

function state(is, text) {
  ready = is === "ready";
  at("state").dataset.is = is;
  put("state", text);
  at("send").disabled = !ready || busy !== null;
}

async function look() {
  try {
    const answer = await fetch("metrics", {headers: auth(), cache: "no-store"});
    gone = 0;
    if (answer.status === 401) {
      askForKey();
      state("bad", "a key is needed");
    } else if (answer.status === 503) {
      const why = (await answer.json()).error.message;
      state("wait", why);
    } else if (!answer.ok) {
      state("bad", "/metrics answers " + answer.status);
    } else {
      at("gate").hidden = true;
      show(parseMetrics(await answer.text()));
      state("ready", "ready");
      await lookAtRequests();
    }
  } catch {
    state("bad", ++gone > 1 ? "the server does not answer" : "connecting");
  }
}
async function keepLooking() {
  const waits = !at("gate").hidden && !key;
  if (!document.hidden && !waits) await look();
  setTimeout(keepLooking, 1000);
}
onKey = async () => {
  await look();
  if (ready) at("say").focus();
};
