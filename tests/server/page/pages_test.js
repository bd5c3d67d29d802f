"use strict";
// The pages as a whole: their scripts can be read, and name elements that are there.
const {assert, fs, path, root, run} = require("./stand_in.js");
const vm = require("node:vm");

const folder = path.join(root, "src/server/page");
const read = name => fs.readFileSync(path.join(folder, name), "utf8");
// The HTML of a page with its parts that are HTML, and the names of its scripts.
function page(name) {
  const html = read(name).replace(/\{\{(\w+\.html)\}\}/g, (all, part) => read(part));
  return {html, scripts: [...html.matchAll(/\{\{(\w+\.js)\}\}/g)].map(m => m[1])};
}

const checks = {};
for (const name of ["page.html", "docs.html"])
  checks[name] = () => {
    const {html, scripts} = page(name);
    const ids = [...html.matchAll(/\bid="([\w-]+)"/g)].map(m => m[1]);
    assert.equal(new Set(ids).size, ids.length, "an id twice");
    assert.ok(scripts.length >= 3);
    // As one text: a name that two scripts declare is an error, as in a browser.
    const text = scripts.map(read).join("\n");
    new vm.Script(text, {filename: name});
    const named = [...text.matchAll(/\b(?:at|put|rows)\("([\w-]+)"/g)].map(m => m[1]);
    assert.ok(named.length > 10);
    assert.deepEqual(named.filter(id => !ids.includes(id)), []);
    for (const [, id] of html.matchAll(/<label for="([\w-]+)"/g)) assert.ok(ids.includes(id), id);
    // Every field has a label or a name for screen readers.
    for (const [tag, attributes] of [...html.matchAll(/<(?:input|textarea)\b([^>]*)>/g)]) {
      const id = /\bid="([\w-]+)"/.exec(attributes)?.[1];
      assert.ok(/aria-label=/.test(attributes) || html.includes(`for="${id}"`) || html.includes(`<label>`) &&
        new RegExp(`<label>[^<]*<input[^>]*id="${id}"`).test(html), tag);
    }
    assert.equal(/\son\w+=|\sstyle=/.test(html), false, "a handler or a style that the policy does not let through");
  };
run(checks);
