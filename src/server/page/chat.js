"use strict";
// The chat of the live page. The conversation is a list of turns; the messages of a request are made from it.

const WHO = {user: "you", tool: "result of the tool", assistant: "model", system: "system", developer: "developer"};
let busy = null;  // the AbortController of the answer that is being written
let turns = [];

// Runs `change`, and stays at the end where the reader was there.
function scrolled(change) {
  const talk = at("talk");
  const end = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 40;
  change();
  if (end) talk.scrollTop = talk.scrollHeight;
}

class Turn {
  constructor(message) {
    this.message = message;  // as the API takes it
    this.dead = false;       // an answer without content, and its question: not sent again
    this.open = false;       // more is to come
    this.attempt = 0;        // how often it was asked for again
    this.callBoxes = [];
    this.thought = null;
    this.thoughts = "";      // all of them; they are shown and exported, and not sent back
    this.fresh = this.freshThought = "";  // what came and is not shown yet
    this.frame = 0;
    this.numbers = "";
    const {role} = message;
    this.box = element("article", "turn " + role);
    this.box.setAttribute("aria-label", WHO[role]);
    this.text = element("div", "text");
    this.foot = element("span", "foot");
    const who = element("div", "who", WHO[role]), bottom = element("div", "bottom"), acts = element("span", "acts");
    if (role === "assistant") {
      this.again = button("act", "Regenerate", "Regenerate answer", () => regenerate(this));
      this.copy = button("act", "Copy", "Copy answer as markdown", b => copyText(this.message.content ?? "", b));
      acts.append(this.copy, this.again);
      bottom.append(this.foot, acts);
    } else {
      this.change = button("act", "Edit", "Edit message", () => edit(this));
      acts.append(this.change);
      who.append(acts);
    }
    this.box.append(who, this.text, bottom);
    for (const call of message.tool_calls ?? []) this.showCall(this.callBoxes.length, call.function);
    this.show();
  }

  get bottom() { return this.box.lastChild; }

  // All of the text, as the switch says.
  show() {
    const raw = at("raw").checked || this.message.role !== "assistant";
    this.fresh = "";
    this.text.className = raw ? "text" : "text md";
    this.text.replaceChildren();
    this.view = raw ? null : new MarkdownView(this.text);
    this.write(this.message.content ?? "");
    if (!this.open) this.view?.finish();
  }
  write(piece) {
    if (!piece) return;
    if (this.view) this.view.push(piece);
    else this.text.append(piece);
  }

  // Text is shown once a frame, however many pieces come.
  add(piece, thought) {
    this.message.content += piece;
    this.fresh += piece;
    this.freshThought += thought;
    this.frame ||= requestAnimationFrame(() => scrolled(() => this.flush()));
  }
  flush() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.freshThought) {
      this.thoughts += this.freshThought;
      if (!this.thought) {
        const box = element("details", "thought");
        box.append(element("summary", "", "thoughts"), this.thought = element("div"));
        box.open = true;
        this.box.insertBefore(box, this.text);
      }
      this.thought.append(this.freshThought);
    }
    const piece = this.fresh;
    this.fresh = this.freshThought = "";
    this.write(piece);
    if (this.foot.textContent !== this.numbers) this.foot.textContent = this.numbers;
  }
  end() {
    this.open = false;
    this.flush();
    this.view?.finish();
  }

  showCall(index, {name, arguments: given}) {
    if (!this.callBoxes[index]) {
      this.callBoxes[index] = element("div", "call");
      this.box.insertBefore(this.callBoxes[index], this.bottom);
    }
    this.callBoxes[index].textContent = `${name}(${given})`;
  }
  wrong(text) {
    const box = element("div", "wrong", text);
    box.setAttribute("role", "alert");
    this.box.insertBefore(box, this.bottom);
  }
  remove() {
    cancelAnimationFrame(this.frame);
    this.box.remove();
  }
}

// ---- the conversation ----

function addTurn(message) {
  at("hint").hidden = true;
  const turn = new Turn(message);
  turns.push(turn);
  at("talk").append(turn.box);
  return turn;
}
function cutTurns(from) {
  for (const turn of turns.splice(from)) turn.remove();
  at("hint").hidden = turns.length > 0;
}
const said = () => turns.filter(t => !t.dead).map(t => t.message);
const systemMessage = () => at("system").value.trim() ? [{role: "system", content: at("system").value}] : [];

// The calls of tools whose results are still to be given.
function pendingCalls() {
  const list = said(), given = new Set();
  while (list.at(-1)?.role === "tool") given.add(list.pop().tool_call_id);
  return (list.at(-1)?.tool_calls ?? []).map(c => c.id).filter(id => !given.has(id));
}

// What can be pressed, and what the text field is for.
function refresh() {
  turns.forEach((turn, i) => {
    const last = i === turns.length - 1;
    turn.box.classList.toggle("dead", turn.dead);
    if (turn.change) turn.change.disabled = busy !== null;
    if (!turn.again) return;
    turn.copy.hidden = turn.open || !turn.message.content;
    turn.again.hidden = turn.open || !last;
    turn.again.disabled = busy !== null;
    turn.again.textContent = turn.dead ? "Try again" : "Regenerate";
    turn.again.setAttribute("aria-label", turn.dead ? "Try again" : "Regenerate answer");
  });
  at("send").disabled = !ready || busy !== null;
  at("stop").disabled = busy === null;
  at("talk").setAttribute("aria-busy", String(busy !== null));
  for (const id of ["export-json", "export-markdown"]) at(id).disabled = turns.length === 0 || busy !== null;
  put("say-label", pendingCalls().length ? "Result of the tool call (it is sent as the tool's answer)"
    : "Message (Enter sends, Shift+Enter breaks the line, Escape stops)");
}

// ---- answers ----

const PARAMETERS = {temperature: "temperature", top_p: "top-p", max_tokens: "most", seed: "seed"};  // to the fields' ids

function parameters() {
  const out = {};
  for (const [name, id] of Object.entries(PARAMETERS)) if (at(id).value !== "") out[name] = Number(at(id).value);
  if (at("tools").value.trim()) out.tools = JSON.parse(at("tools").value);
  return out;
}

async function* events(stream) {
  const decoder = new TextDecoder();
  let held = "";
  for (const reader = stream.getReader();;) {
    const {done, value} = await reader.read();
    if (done) return;
    held += decoder.decode(value, {stream: true});
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
      const data = held.slice(0, end).replace(/^data: ?/, "");
      if (data === "[DONE]") return;
      if (data && !data.startsWith(":")) yield JSON.parse(data);
    }
  }
}

async function ask(messages, attempt, signal) {
  const body = {messages, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}, ...parameters()};
  if (body.seed !== undefined) body.seed += attempt;
  const reply = await fetch("v1/chat/completions", {method: "POST", signal, body: JSON.stringify(body),
    headers: {...auth(), "content-type": "application/json"}});
  if (reply.ok) return {seed: body.seed, body: reply.body};
  const text = await reply.text();
  let why = text;
  try { why = JSON.parse(text).error.message; } catch { /* not JSON: shown as it is */ }
  throw new Error(`${reply.status}: ${why}`);
}

// In place of `previous`, where that is given; it comes back when there is nothing instead.
async function answer(previous) {
  const messages = [...systemMessage(), ...said()];
  const turn = addTurn({role: "assistant", content: ""});
  turn.open = true;
  if (previous) turn.attempt = previous.attempt + 1;
  const calls = [], begin = performance.now();
  let tokens = 0, first = 0, last = 0, reason = "", seed, problem = "";
  const number = () => {
    const words = [];
    if (first) words.push("first token " + time((first - begin) / 1000));
    if (tokens > 1 && last > first) words.push(count(1000 * (tokens - 1) / (last - first)) + " tok/s");
    if (tokens) words.push(several(tokens, "token"));
    if (seed !== undefined) words.push("seed " + seed);
    if (reason) words.push(reason);
    turn.numbers = words.join(" · ");
  };
  const control = busy = new AbortController();
  refresh();
  at("talk").scrollTop = at("talk").scrollHeight;
  try {
    const reply = await ask(messages, turn.attempt, control.signal);
    seed = reply.seed;
    for await (const event of events(reply.body)) {
      if (event.error) throw new Error(event.error.message);
      tokens = event.usage?.completion_tokens ?? tokens;
      const choice = event.choices?.[0], delta = choice?.delta ?? {};
      const thought = delta.reasoning_content ?? delta.reasoning ?? "";
      for (const c of delta.tool_calls ?? []) {
        const call = calls[c.index] ??= {id: c.id, type: "function", function: {name: "", arguments: ""}};
        call.function.name += c.function?.name ?? "";
        call.function.arguments += c.function?.arguments ?? "";
        scrolled(() => turn.showCall(c.index, call.function));
      }
      if (thought || delta.content || delta.tool_calls) { last = performance.now(); first ||= last; }
      reason = choice?.finish_reason ?? reason;
      number();
      turn.add(delta.content ?? "", thought);
    }
  } catch (e) {
    if (e.name === "AbortError") reason = "stopped";
    else problem = e.message;
  }
  number();
  scrolled(() => {
    turn.end();
    if (problem) turn.wrong(problem);
  });
  if (busy === control) busy = null;
  if (!turns.includes(turn)) return refresh();  // the conversation is another one by now
  const list = calls.filter(c => c);
  if (list.length) Object.assign(turn.message, {tool_calls: list, content: turn.message.content || null});
  if (!turn.message.content && !list.length) {
    if (previous) putBack(previous, problem);
    else setDead(true);
  }
  scrolled(refresh);
}
function putBack(previous, problem) {
  cutTurns(turns.length - 1);
  turns.push(previous);
  at("talk").append(previous.box);
  at("hint").hidden = true;
  put("chat-note", problem ? "No new answer: " + problem : "");
}
// The last answer, and what it was to answer.
function setDead(dead) {
  let i = turns.length - 1;
  for (turns[i].dead = dead; i > 0 && turns[i - 1].message.role !== "assistant"; --i) turns[i - 1].dead = dead;
}
function regenerate(turn) {
  if (busy || !ready || turns.at(-1) !== turn) return;
  put("chat-note", "");
  const nothing = turn.dead;
  if (nothing) setDead(false);
  cutTurns(turns.length - 1);
  answer(nothing ? undefined : turn);
  at("say").focus({preventScroll: true});
}

function say(message) {
  put("chat-note", "");
  addTurn(message);
  at("talk").scrollTop = at("talk").scrollHeight;
  if (pendingCalls().length === 0) answer();
  else refresh();
}
function send() {
  const content = at("say").value;
  if (busy || !ready || !content.trim()) return;
  at("say").value = "";
  const pending = pendingCalls();
  say(pending.length ? {role: "tool", tool_call_id: pending[0], content} : {role: "user", content});
}

// The message becomes a field; when it is sent the conversation ends there and goes on with it.
function edit(turn) {
  if (busy) return;
  const area = element("textarea"), form = element("form", "edit"), row = element("div", "row push");
  area.value = turn.message.content ?? "";
  area.rows = Math.min(12, area.value.split("\n").length + 1);
  area.setAttribute("aria-label", "Edited message");
  const close = () => {
    turn.show();
    turn.change.hidden = false;
    turn.change.focus();
  };
  const ask = element("button", "main", "Ask again");
  row.append(button("", "Cancel", "", close), ask);
  form.append(area, row);
  form.addEventListener("submit", event => {
    event.preventDefault();
    if (busy || !ready || !area.value.trim()) return;
    cutTurns(turns.indexOf(turn));
    say({...turn.message, content: area.value});
    at("say").focus({preventScroll: true});
  });
  area.addEventListener("keydown", event => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
    submitOnEnter(event, form);
  });
  turn.text.replaceChildren(form);
  turn.change.hidden = true;
  area.focus();
}

// ---- export and import ----

function download(name, type, text) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
// The messages with the thoughts of their answers.
const told = () => turns.filter(t => !t.dead).map(t =>
  t.thoughts ? {...t.message, reasoning_content: t.thoughts} : t.message);
// A body for /v1/chat/completions.
const asJson = () => JSON.stringify({model: at("model").textContent, ...parameters(),
  messages: [...systemMessage(), ...told()]}, null, 2) + "\n";
function asMarkdown() {
  const title = {system: "System", developer: "Developer", user: "User", assistant: "Assistant", tool: "Tool"};
  let out = `# Conversation with ${at("model").textContent}\n`;
  for (const m of [...systemMessage(), ...told()]) {
    out += `\n## ${title[m.role]}\n\n`;
    if (m.reasoning_content) out += m.reasoning_content.trim().replace(/^/gm, "> ") + "\n\n";
    if (m.content) out += m.content.trimEnd() + "\n";
    for (const c of m.tool_calls ?? []) out += `\n\`${c.function.name}\`\n\n\`\`\`json\n${c.function.arguments}\n\`\`\`\n`;
  }
  return out;
}

// A message of a file, with its content as one text.
function readMessage(m, i) {
  const fail = why => { throw new Error(`message ${i + 1}: ${why}`); };
  if (typeof m !== "object" || m === null) fail("an object is expected");
  if (!Object.hasOwn(WHO, m.role)) fail(`the role ${JSON.stringify(m.role)} is not known`);
  let content = m.content ?? null;
  if (Array.isArray(content) && content.every(p => p?.type === "text" && typeof p.text === "string"))
    content = content.map(p => p.text).join("");
  const out = {role: m.role, content};
  if (m.role === "assistant" && Array.isArray(m.tool_calls) && m.tool_calls.length) {
    if (!m.tool_calls.every(c => typeof c?.function?.name === "string")) fail("a call without a name");
    out.tool_calls = m.tool_calls;
  }
  if (typeof content !== "string" && !(content === null && out.tool_calls)) fail("its content is not text");
  if (m.role === "tool") out.tool_call_id = m.tool_call_id;
  const thoughts = m.role === "assistant" ? m.reasoning_content ?? m.reasoning : "";
  return {message: out, thoughts: typeof thoughts === "string" ? thoughts : ""};
}
function load(text) {
  const file = JSON.parse(text), given = Array.isArray(file) ? {messages: file} : file;
  if (!Array.isArray(given?.messages)) throw new Error("a list of messages, or an object with one, is expected");
  const messages = given.messages.map(readMessage);
  clear();
  at("system").value = messages[0]?.message.role === "system" ? messages.shift().message.content : "";
  for (const [name, id] of Object.entries(PARAMETERS))
    if (typeof given[name] === "number") at(id).value = given[name];
  if (given.tools) at("tools").value = JSON.stringify(given.tools, null, 2);
  at("more").open ||= at("system").value !== "" || Boolean(given.tools);
  for (const {message, thoughts} of messages) {
    const turn = addTurn(message);
    turn.freshThought = thoughts;
    turn.flush();
  }
  put("chat-note", several(messages.length, "message") + " imported");
  refresh();
  at("talk").scrollTop = at("talk").scrollHeight;
}
function clear() {
  busy?.abort();
  cutTurns(0);
  put("chat-note", "");
  refresh();
}

// ---- the page ----

function submitOnEnter(event, form) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
}
at("ask").addEventListener("submit", event => { event.preventDefault(); send(); });
at("say").addEventListener("keydown", event => submitOnEnter(event, at("ask")));
document.addEventListener("keydown", event => { if (event.key === "Escape") busy?.abort(); });
at("stop").addEventListener("click", () => { busy?.abort(); at("say").focus(); });
at("clear").addEventListener("click", () => { clear(); at("say").focus(); });
at("raw").addEventListener("change", () => { for (const t of turns) if (t.message.role === "assistant") t.show(); });
at("talk").addEventListener("click", event => {
  const from = event.target.closest?.(".code .copy");
  if (from) copyText(from.closest(".code").querySelector("code").textContent, from);
});
at("export-json").addEventListener("click", () => exportAs("conversation.json", "application/json", asJson));
at("export-markdown").addEventListener("click", () => exportAs("conversation.md", "text/markdown", asMarkdown));
function exportAs(name, type, text) {
  try {
    download(name, type, text());
  } catch (e) {
    put("chat-note", "tools: " + e.message);
  }
}
at("import").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", async () => {
  const file = at("file").files[0];
  at("file").value = "";
  if (!file) return;
  try {
    load(await file.text());
  } catch (e) {
    put("chat-note", `${file.name}: ${e.message}`);
  }
});
refresh();
keepLooking();
