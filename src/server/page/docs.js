"use strict";
// The page at /docs: openapi.json as text, with examples and forms to try them.

const MOST_SHOWN = 200000;  // characters of an answer
const base = () => location.href.replace(/[?#].*$/, "").replace(/\/docs\/?$/, "");
const ACCESS = {open: "Open to everybody.", key: "Needs a key where the server has one.",
  admin: "Admin: for clients on this machine, or with the admin key."};
let keyed = false;  // the server asks for a key
let shown = [];     // {box, link, text} of each route

// Text with `code` in it.
function words(text, into) {
  text.split("`").forEach((part, i, all) => {
    if (part) into.append(i % 2 && i < all.length - 1 ? element("code", "", part) : part);
  });
  return into;
}

function fieldList(fields) {
  const ul = element("ul", "fields");
  for (const f of fields) {
    const li = element("li"), kinds = f.kinds.join(" or ");
    li.append(element("code", "name", f.name), " ", element("span", "kind", kinds === "null" ? "not taken" : kinds));
    if (f.default !== undefined) li.append(" ", element("span", "default", "· default " + JSON.stringify(f.default)));
    if (f.required) li.append(" ", element("span", "needed", "· required"));
    if (f.description) li.append(words(f.description, element("p")));
    if (f.fields.length) li.append(fieldList(f.fields));
    ul.append(li);
  }
  return ul;
}
function namesOf(fields) {
  return fields.map(f => `${f.name} ${f.description} ${namesOf(f.fields)}`).join(" ");
}

function codeBox(title, text) {
  const box = element("div", "code"), bar = element("div", "bar-of-code"), pre = element("pre", "", text);
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", title);
  bar.append(element("span", "language", title), button("copy", "Copy", "Copy " + title, b => copyText(pre.textContent, b)));
  box.append(bar, pre);
  return {box, set: text => { pre.textContent = text; }};
}

function responseList(api, responses) {
  const details = element("details");
  details.append(element("summary", "", "Responses: " + responses.map(r => r.status).join(", ")));
  for (const r of responses) {
    details.append(element("h4", "", r.status), words(r.description ?? "", element("p")));
    for (const [type, content] of Object.entries(r.content ?? {})) {
      const fields = api.fields(content.schema, false);
      const p = element("p", "access", `${type}: ${api.kind(content.schema, false)}`);
      details.append(p);
      if (fields.length && r.status < 400) details.append(fieldList(fields));
    }
  }
  return details;
}

// ---- trying a route ----

// Shows what comes, as it comes; JSON is laid out at the end.
async function showReply(reply, pre, say) {
  const type = reply.headers.get("content-type") ?? "", decoder = new TextDecoder();
  let all = "", length = 0;
  for (const reader = reply.body.getReader();;) {
    const {done, value} = await reader.read();
    if (done) break;
    const piece = decoder.decode(value, {stream: true});
    if (length < MOST_SHOWN) pre.append(piece.slice(0, MOST_SHOWN - length));
    if (length < MOST_SHOWN) all += piece;
    length += piece.length;
    say(length);
  }
  if (type.startsWith("application/json") && length < MOST_SHOWN) {
    try { pre.textContent = JSON.stringify(JSON.parse(all), null, 2); } catch { /* shown as it came */ }
  }
  if (length > MOST_SHOWN) pre.append(`\n… (${count(length - MOST_SHOWN)} more characters)`);
}

function tryForm(route, example) {
  const details = element("details"), form = element("form"), row = element("div", "row");
  const id = name => `${route.id}-${name}`;
  details.append(element("summary", "", "Try it"), form);
  const values = {};
  for (const p of route.parameters.filter(p => p.in === "path")) {
    const label = element("label", "", `${p.name} (in the path)`), input = element("input");
    label.htmlFor = input.id = id(p.name);
    input.required = true;
    input.addEventListener("input", () => { values[p.name] = input.value; update(); });
    form.append(label, input);
  }
  let area = null;
  if (route.body) {
    const label = element("label", "", "Body (JSON)");
    area = element("textarea", "mono");
    label.htmlFor = area.id = id("body");
    area.spellcheck = false;
    area.value = example;
    area.rows = Math.min(14, example.split("\n").length + 1);
    area.addEventListener("input", () => update());
    form.append(label, area);
  }
  const send = element("button", "main", "Send"), stop = button("", "Stop", "", () => control?.abort());
  const status = element("span", "access");
  status.setAttribute("role", "status");
  stop.disabled = true;
  row.append(send, stop, status);
  const pre = element("pre", "reply");
  pre.hidden = true;
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", "Answer");
  form.append(row, pre);
  const command = codeBox("curl", "");
  const update = () => {
    const body = area?.value.trim() ? area.value.trim() : undefined;
    command.set(Description.curl(route, base(), keyed, body, values));
  };
  update();
  let control = null;
  form.addEventListener("submit", async event => {
    event.preventDefault();
    if (control) return;
    const body = area?.value.trim();
    if (body) {
      try {
        JSON.parse(body);
      } catch (e) {
        status.textContent = "not JSON: " + e.message;
        return;
      }
    }
    control = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    pre.hidden = false;
    pre.replaceChildren();
    status.textContent = "waiting";
    const begin = performance.now(), took = () => time((performance.now() - begin) / 1000);
    let head = "";
    try {
      const reply = await fetch(base() + Description.path(route, values), {method: route.method, signal: control.signal, cache: "no-store",
        headers: body ? {...auth(), "content-type": "application/json"} : auth(), body: body || undefined});
      head = `${reply.status} ${reply.statusText}`;
      await showReply(reply, pre, length => { status.textContent = `${head} · ${took()} · ${count(length)} characters`; });
      status.textContent = `${head} · ${took()} · ${reply.headers.get("content-type") ?? ""}`;
    } catch (e) {
      status.textContent = (head ? head + " · " : "") + (e.name === "AbortError" ? "stopped" : "no answer: " + e.message);
    }
    control = null;
    send.disabled = false;
    stop.disabled = true;
  });
  return {details, command: command.box};
}

// ---- the page ----

function exampleOf(route) {
  return route.body ? JSON.stringify(route.body.example ?? {}, null, 2) : "";
}

function showRoute(api, route) {
  const box = element("section", "route"), title = element("h3"), anchor = element("a", "", "#");
  box.id = route.id;
  box.setAttribute("aria-label", `${route.method} ${route.path}`);
  anchor.href = "#" + route.id;
  anchor.setAttribute("aria-label", "Link to this route");
  title.append(element("span", "method " + route.method.toLowerCase(), route.method), route.path, anchor);
  box.append(title);
  for (const text of [route.summary, route.description]) if (text) box.append(words(text + (/[.!?]$/.test(text) ? "" : "."), element("p")));
  box.append(element("p", "access", ACCESS[route.access]));
  let text = `${route.method} ${route.path} ${route.summary} ${route.description} `;
  if (route.parameters.length) {
    const fields = route.parameters.map(p => ({name: p.name, kinds: [`${api.kind(p.schema ?? {}, true)}, in the ${p.in}`],
      required: p.required === true, description: p.description ?? "", fields: []}));
    box.append(element("h4", "", "Parameters"), fieldList(fields));
    text += namesOf(fields);
  }
  if (route.body) {
    const fields = api.fields(route.body.schema, true), about = api.resolve(route.body.schema).description;
    box.append(element("h4", "", route.body.required ? "Body, as JSON" : "Body, as JSON (may be left out)"));
    if (about) box.append(words(about + ".", element("p")));
    if (fields.length > 12) {
      const details = element("details");
      details.append(element("summary", "", several(fields.length, "field")), fieldList(fields));
      details.open = fields.length < 20;
      box.append(details);
    } else if (fields.length) {
      box.append(fieldList(fields));
    } else {
      box.append(element("p", "access", "Anything."));
    }
    text += namesOf(fields);
  }
  const form = tryForm(route, exampleOf(route));
  box.append(element("h4", "", "Example"), form.command, form.details, responseList(api, route.responses));
  return {box, text: text.toLowerCase()};
}

function showAll(api) {
  const info = api.json.info;
  put("model", `API ${info.version}`);
  words(info.description ?? "", at("about-text"));
  at("about").hidden = false;
  shown = [];
  const groups = [], lists = [];
  for (const group of api.groups()) {
    const box = element("div", "group"), list = element("div"), ul = element("ul");
    box.append(element("h2", "", group.description));
    list.append(element("h2", "", group.description), ul);
    for (const route of group.routes) {
      const {box: section, text} = showRoute(api, route), li = element("li"), link = element("a");
      link.href = "#" + route.id;
      link.append(element("span", "method " + route.method.toLowerCase(), route.method), route.path);
      li.append(link);
      ul.append(li);
      box.append(section);
      shown.push({section, li, text, group: box, list});
    }
    groups.push(box);
    lists.push(list);
  }
  at("groups").replaceChildren(...groups);
  at("links").replaceChildren(...lists);
  at("routes").open = matchMedia("(min-width: 920px)").matches;
  search();
  if (location.hash.length > 1) at(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

function search() {
  const asked = at("search").value.toLowerCase().split(/\s+/).filter(w => w);
  let found = 0;
  for (const r of shown) {
    const fits = asked.every(w => r.text.includes(w));
    r.section.hidden = r.li.hidden = !fits;
    found += fits;
  }
  for (const r of shown) r.group.hidden = r.list.hidden = shown.every(o => o.group !== r.group || o.section.hidden);
  put("found", asked.length ? `${count(found)} of ${several(shown.length, "route")}` : "");
}

async function lookUp() {
  const say = (is, text) => {
    at("state").dataset.is = is;
    put("state", text);
  };
  try {
    const answer = await fetch("openapi.json", {headers: auth(), cache: "no-store"});
    if (answer.status === 401) {
      keyed = true;
      askForKey();
      return say("bad", "a key is needed");
    }
    if (!answer.ok) return say("bad", "/openapi.json answers " + answer.status);
    const json = await answer.json();
    at("gate").hidden = true;
    showAll(new Description(json));
    say("ready", "ready");
  } catch {
    say("bad", "the server does not answer");
  }
}

at("search").addEventListener("input", search);
onKey = lookUp;
lookUp();
