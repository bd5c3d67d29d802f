"use strict";
// What tests of the pages' scripts need: a document that can be read as text, the scripts themselves, and a list of
// checks. For node, without packages.
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const root = path.resolve(__dirname, "../../..");

class Node {
  constructor() { this.parentNode = null; }
  remove() {
    if (!this.parentNode) return;
    const list = this.parentNode.childNodes;
    list.splice(list.lastIndexOf(this), 1);
    this.parentNode = null;
  }
}
class Text extends Node {
  constructor(data) {
    super();
    this.data = data;
  }
  get length() { return this.data.length; }
  get textContent() { return this.data; }
  appendData(more) { this.data += more; }
}
class Element extends Node {
  constructor(tag) {
    super();
    Object.assign(this, {tag, className: "", attributes: new Map(), childNodes: []});
  }
  get firstChild() { return this.childNodes[0] ?? null; }
  get textContent() { return this.childNodes.map(n => n.textContent).join(""); }
  set textContent(text) { this.replaceChildren(new Text(text)); }
  setAttribute(name, value) { this.attributes.set(name, value); }
  getAttribute(name) { return this.attributes.get(name) ?? null; }
  append(...nodes) {
    for (let node of nodes) {
      if (!(node instanceof Node)) node = new Text(String(node));
      node.remove();
      node.parentNode = this;
      this.childNodes.push(node);
    }
  }
  replaceChildren(...nodes) {
    for (const node of this.childNodes) node.parentNode = null;
    this.childNodes = [];
    this.append(...nodes);
  }
}
const document = {createElement: tag => new Element(tag), createTextNode: text => new Text(text)};

// Elements as in HTML, with the attributes named; neighbouring texts are not told apart.
function show(node, attributes = ["href", "start"]) {
  if (node instanceof Text) return node.data.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const kind = node.className ? "." + node.className : "";
  const more = attributes.filter(a => node.attributes.has(a)).map(a => ` ${a}="${node.attributes.get(a)}"`).join("");
  const inner = node.childNodes.map(n => show(n, attributes)).join("");
  return `<${node.tag}${kind}${more}>${inner}</${node.tag}>`;
}
function* nodes(node) {
  yield node;
  for (const n of node.childNodes ?? []) yield* nodes(n);
}

// The value of `expression` where the named scripts of src/server/page have run.
function load(names, expression, globals = {}) {
  const context = vm.createContext({document, console, performance, ...globals});
  for (const name of names)
    vm.runInContext(fs.readFileSync(path.join(root, "src/server/page", name), "utf8"), context, {filename: name});
  return vm.runInContext(expression, context);
}

// Runs the checks in order, all of them; the process says whether one failed.
async function run(checks) {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
    } catch (e) {
      ++failed;
      console.log(`FAILED: ${name}\n${e.stack}`);
    }
  }
  console.log(`${Object.keys(checks).length} checks, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

module.exports = {assert, fs, path, root, document, Element, Text, show, nodes, load, run};
