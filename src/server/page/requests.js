"use strict";
// The list of requests of the live page, from GET /requests: an admin route, so it may be refused, and then there is
// no list.

const MOST_ROWS = 40;
let requestsRefusedTo = null;  // the key that may not ask
let requestsShown = "";

const requestColumns = [
  ["id", "", r => r.id],
  ["route", "", r => r.route],
  ["state", "", r => r.state],
  ["prompt", "n", r => count(r.prompt_tokens)],
  ["cached", "n", r => r.cached_tokens === null ? "–" : count(r.cached_tokens)],
  ["generated", "n", r => count(r.generated_tokens)],
  ["first token", "n", r => r.time_to_first_token === null ? "–" : time(r.time_to_first_token)],
  ["tok/s", "n", r => r.tokens_per_second === null ? "–" : count(r.tokens_per_second)],
  ["took", "n", r => time(r.elapsed)],
  ["finish reason", "", r => r.finish_reasons.join(", ") || "–"],
];

function showRequests(list) {
  const all = [...list.running, ...list.recent];
  at("request-rows").replaceChildren(...all.slice(0, MOST_ROWS).map(r => {
    const tr = element("tr", r.state);
    for (const [name, kind, value] of requestColumns) tr.append(element("td", name === "id" ? "id" : kind, value(r)));
    tr.firstChild.title = r.id;
    return tr;
  }));
  put("request-note", `${count(list.running_total)} running or queued, ${count(list.ended_total)} ended since the start` +
    (all.length > MOST_ROWS ? `; the first ${MOST_ROWS} of the list are shown` : ""));
}

async function lookAtRequests() {
  if (requestsRefusedTo === key) return;
  const answer = await fetch("requests", {headers: auth(), cache: "no-store"});
  if (!answer.ok) {
    if (answer.status === 401 || answer.status === 403) requestsRefusedTo = key;
    at("requests").hidden = true;
    return;
  }
  const text = await answer.text();
  at("requests").hidden = false;
  if (text !== requestsShown) showRequests(JSON.parse(text));
  requestsShown = text;
}

at("request-head").append(...requestColumns.map(([name, kind]) => {
  const th = element("th", kind, name);
  th.scope = "col";
  return th;
}));
