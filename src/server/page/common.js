"use strict";
// What the pages share: elements, the key, the clipboard.

const at = id => document.getElementById(id);
const put = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };
const element = (tag, kind, text) => {
  const e = document.createElement(tag);
  if (kind) e.className = kind;
  if (text !== undefined) e.textContent = text;
  return e;
};
// A button of a form that it does not send.
function button(kind, text, label, onClick) {
  const b = element("button", kind, text);
  b.type = "button";
  if (label) b.setAttribute("aria-label", label);
  b.addEventListener("click", () => onClick(b));
  return b;
}

const count = n => n.toLocaleString("en", {maximumFractionDigits: n < 10 && n % 1 ? 1 : 0});
const several = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
const time = s => s < 1 ? (s * 1000).toFixed(s < 0.01 ? 1 : 0) + " ms" : s.toFixed(s < 10 ? 2 : 0) + " s";

let key = "";
let onKey = () => {};  // called when one was given
const auth = () => key ? {authorization: "Bearer " + key} : {};
// After an answer of 401.
function askForKey() {
  if (at("gate").hidden) {
    at("gate").hidden = false;
    at("key").focus();
  } else if (key) {
    put("gate-wrong", "this key is wrong");
  }
  key = "";
}
at("gate-form").addEventListener("submit", event => {
  event.preventDefault();
  key = at("key").value.trim();
  at("key").value = "";
  put("gate-wrong", "");
  onKey();
});

// For pages that came over plain HTTP from another machine, where the browser gives no other way.
function copySelected(text) {
  const area = element("textarea", "aside");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
// The button says what came of it.
async function copyText(text, from) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copySelected(text);
    from.focus();
  }
  from.dataset.says ??= from.textContent;
  from.textContent = done ? "Copied" : "Not copied";
  put("said", "");
  put("said", from.textContent);
  setTimeout(() => { from.textContent = from.dataset.says; }, 1500);
}
