"use strict";
// src/server/page/chat.js: conversations that leave the page, and come back.
const {assert, Element, Text, load, run} = require("./stand_in.js");

// An element that takes whatever a page does with it.
class Part extends Element {
  constructor(tag) {
    super(tag);
    Object.assign(this, {value: "", checked: false, hidden: false, dataset: {}, style: {}, scrollTop: 0,
      classList: {toggle() {}, add() {}, remove() {}}});
  }
  get lastChild() { return this.childNodes.at(-1) ?? null; }
  addEventListener() {}
  focus() {}
  insertBefore(node, next) {
    this.append(node);
    this.childNodes.splice(this.childNodes.indexOf(next), 0, this.childNodes.pop());
  }
}
const ids = new Map();
const document = {
  createElement: tag => new Part(tag), createTextNode: text => new Text(text), addEventListener() {}, body: new Part("body"),
  getElementById: id => ids.get(id) ?? ids.set(id, new Part("div")).get(id), querySelectorAll: () => [],
};
const page = load(["common.js", "markdown.js", "chat.js"], "({load, asJson, asMarkdown, said: () => said()})",
  {document, keepLooking() {}, ready: true, requestAnimationFrame: f => f(), cancelAnimationFrame() {}});

const conversation = [
  {role: "system", content: "Be brief."}, {role: "user", content: "Hi"},
  {role: "assistant", content: "Hello.", reasoning_content: "A greeting.\n\nSo I greet."}, {role: "user", content: "Bye"},
];
const plain = value => JSON.parse(JSON.stringify(value));

run({
  thoughtsAreExportedAndNotSent() {
    page.load(JSON.stringify({messages: conversation, temperature: 0.5}));
    assert.deepEqual(JSON.parse(page.asJson()).messages, conversation);
    assert.equal(JSON.parse(page.asJson()).temperature, 0.5);
    assert.deepEqual(plain(page.said()), [{role: "user", content: "Hi"}, {role: "assistant", content: "Hello."},
      {role: "user", content: "Bye"}]);
    assert.match(page.asMarkdown(), /## Assistant\n\n> A greeting\.\n> \n> So I greet\.\n\nHello\.\n/);
  },
  whatWasExportedCanBeImported() {
    page.load(JSON.stringify(conversation));
    const first = page.asJson();
    page.load(first);
    assert.equal(page.asJson(), first);
  },
  otherFilesAreRefused() {
    for (const text of ["{}", "3", '[{"role": "nobody", "content": ""}]', '[{"role": "user"}]'])
      assert.throws(() => page.load(text), text);
  },
});
