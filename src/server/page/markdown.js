"use strict";
// MarkdownView: writes markdown into a node while the text is still coming.
//
// It makes elements and text nodes, never markup, so HTML in the text is shown as text; links lead to http, https and
// mailto alone. A line is parsed once when it is complete. Of the last, incomplete line the effect is undone and done
// again with each piece, and of an open paragraph the inline content. Every input takes linear time: nesting is
// bounded, a search that failed is not repeated, and a long open paragraph is parsed again only when it has grown by
// a quarter.
//
// It is CommonMark with the tables, strikethrough and bare links of GitHub, except: line breaks and spaces stay as
// typed, underlines of headings have three characters, formulas in \( \), \[ \] and $$ are left alone, images become
// links, and there are no HTML blocks, entities and link definitions.

class MarkdownView {
  constructor(root) {
    this.root = root;
    this.frames = [{kind: "root", node: root}];  // the open containers: root, quote, list, item
    this.leaf = null;    // the open block in the last of them: para, fence, indented, table
    this.blank = false;  // the line before was empty
    this.partial = "";   // the line that is not complete
    this.saved = null;   // how things stood before it
    this.log = null;     // what undoes its changes to the page
    this.tip = null;     // the node where it ends
    this.tried = 0;      // how long it was
  }

  push(text) {
    const length = this.partial.length + text.length;
    if (this.log && this.tip && length > MarkdownView.LONG && length < 1.25 * this.tried && !text.includes("\n")) {
      const node = document.createTextNode(text);  // a quarter more, and it is parsed again
      this.partial += text;
      this.tip.append(node);
      this.log.push(() => node.remove());
      return;
    }
    this.restore();
    this.partial += text;
    let from = 0;
    for (let end; (end = this.partial.indexOf("\n", from)) >= 0; from = end + 1) this.line(this.partial.slice(from, end));
    this.partial = this.partial.slice(from);
    if (this.partial) {
      this.saved = {frames: this.frames.slice(), leaf: this.leaf && {...this.leaf}, blank: this.blank};
      this.log = [];
      this.tip = null;
      this.tried = this.partial.length;
      this.line(this.partial);
    }
    if (this.leaf?.kind === "para") this.showParagraph(this.leaf, false);
  }

  finish() {
    this.restore();
    if (this.partial) this.line(this.partial);
    this.partial = "";
    this.cut(1);
  }

  // ---- changes that can be undone ----

  restore() {
    if (!this.log) return;
    while (this.log.length) this.log.pop()();
    Object.assign(this, this.saved);
    this.log = this.saved = null;
  }
  add(parent, node) {
    parent.append(node);
    this.log?.push(() => node.remove());
    return node;
  }
  // `node` is the last child of its parent.
  drop(node) {
    const parent = node.parentNode;
    node.remove();
    this.log?.push(() => parent.append(node));
  }
  loosen(list) {
    if (list.node.className === "") return;
    list.node.className = "";
    this.log?.push(() => { list.node.className = "tight"; });
  }

  // ---- blocks ----

  get top() { return this.frames[this.frames.length - 1]; }

  // Closes all containers but the first `n`.
  cut(n) {
    this.closeLeaf();
    this.frames.length = n;
  }
  closeLeaf() {
    if (this.leaf?.kind === "para") this.showParagraph(this.leaf, true);
    this.leaf = null;
  }
  leaveList() {
    if (this.top.kind === "list") this.frames.pop();
  }

  line(s) {
    if (s.endsWith("\r")) s = s.slice(0, -1);
    let matched = 1;
    for (; matched < this.frames.length; ++matched) {
      const f = this.frames[matched];
      if (f.kind === "quote") {
        const inner = MarkdownView.unquoted(s);
        if (inner === null) break;
        s = inner;
      } else if (f.kind === "item" && !MarkdownView.isBlank(s)) {
        if (MarkdownView.indent(s) < f.indent) break;
        s = MarkdownView.strip(s, f.indent);
      }
    }
    const whole = matched === this.frames.length;
    const leaf = this.leaf;
    if (leaf?.kind === "fence" && whole) {
      if (MarkdownView.closesFence(s, leaf.fence)) this.leaf = null;
      else this.addCode(MarkdownView.strip(s, leaf.indent));
      return;
    }
    if (MarkdownView.isBlank(s)) {
      if (leaf?.kind === "indented" && whole) leaf.blanks += "\n" + MarkdownView.strip(s, 4);
      else this.closeLeaf();
      if (!whole) this.cut(matched);
      this.blank = true;
      return;
    }
    if (leaf?.kind === "para" && !whole && !MarkdownView.startsBlock(s)) {
      return this.addText(s);  // a lazy line
    }
    if (!whole) this.cut(matched);
    s = this.openContainers(s);
    if (!MarkdownView.isBlank(s)) this.addToLeaf(s);
    this.blank = false;
  }

  // Quotes and list items that begin here; returns what is left of the line.
  openContainers(s) {
    for (;;) {
      if (this.frames.length > MarkdownView.DEEPEST || MarkdownView.indent(s) >= 4) return s;
      const inner = MarkdownView.unquoted(s);
      if (inner !== null) {
        this.closeLeaf();
        this.leaveList();
        this.noteBlank();
        this.frames.push({kind: "quote", node: this.add(this.top.node, MarkdownView.make("blockquote"))});
        s = inner;
        continue;
      }
      const marker = MarkdownView.isRule(s) ? null : MarkdownView.marker(s);
      if (!marker) return s;
      if (this.leaf?.kind === "para" && (marker.empty || (marker.ordered && marker.number !== 1))) return s;
      this.closeLeaf();
      if (this.top.kind === "list" && this.top.mark === marker.mark) {
        if (this.blank) this.loosen(this.top);
      } else {
        this.leaveList();
        this.noteBlank();
        const node = MarkdownView.make(marker.ordered ? "ol" : "ul", "tight");
        if (marker.ordered && marker.number !== 1) node.setAttribute("start", String(marker.number));
        this.frames.push({kind: "list", node: this.add(this.top.node, node), mark: marker.mark});
      }
      this.blank = false;
      this.frames.push({kind: "item", node: this.add(this.top.node, MarkdownView.make("li")), indent: marker.indent});
      s = marker.rest;
    }
  }

  // An empty line between two blocks of an item makes its list a loose one.
  noteBlank() {
    if (this.blank && this.top.kind === "item" && this.top.node.firstChild) this.loosen(this.frames[this.frames.length - 2]);
  }

  addToLeaf(s) {
    if (this.top.kind === "list") this.leaveList();
    const leaf = this.leaf;
    if (MarkdownView.indent(s) >= 4) {
      if (leaf?.kind === "para") return this.addText(s);
      if (leaf?.kind !== "indented") {
        this.closeLeaf();
        this.openCode({kind: "indented", blanks: ""}, "");
      }
      return this.addCode(MarkdownView.strip(s, 4));
    }
    const t = s.trimStart();
    const fence = /^(`{3,}|~{3,})(.*)$/.exec(t);
    if (fence && !(fence[1][0] === "`" && fence[2].includes("`"))) {
      this.closeLeaf();
      const language = (/^[^\s{},]+/.exec(fence[2].trim()) ?? [""])[0].slice(0, 32);
      return this.openCode({kind: "fence", fence: fence[1], indent: MarkdownView.indent(s)}, language);
    }
    const hashes = /^(#{1,6})(?:[ \t]|$)/.exec(t);
    if (hashes) {
      this.closeLeaf();
      return this.addHeading(hashes[1].length, MarkdownView.withoutClosingHashes(t.slice(hashes[1].length)));
    }
    if (leaf?.kind === "para") {
      const underline = /^(?:===+|---+)[ \t]*$/.exec(t);
      if (underline) {
        this.drop(leaf.node);
        this.leaf = null;
        return this.addHeading(t[0] === "=" ? 1 : 2, leaf.lines.join("\n"));
      }
      if (this.openTable(t)) return;
    }
    if (MarkdownView.isRule(t)) {
      this.closeLeaf();
      this.noteBlank();
      this.add(this.top.node, MarkdownView.make("hr"));
      return;
    }
    if (leaf?.kind === "table" && t.includes("|")) return this.addRow(leaf.body, "td", leaf.columns, MarkdownView.cells(t));
    this.addText(s);
  }

  addText(s) {
    if (this.leaf?.kind !== "para") {
      this.closeLeaf();
      this.noteBlank();
      const node = this.add(this.top.node, MarkdownView.make("p"));
      node.setAttribute("dir", "auto");
      this.leaf = {kind: "para", node, lines: [], length: 0, view: {lines: 0, last: "", parsed: 0, whole: false}};
    }
    const {lines} = this.leaf;
    lines.push(s);
    this.log?.push(() => lines.pop());
    this.leaf.length += s.length + 1;
    this.tip = this.leaf.node;
  }

  // While a paragraph is open and long, new text is shown as it is until there is a quarter more of it.
  showParagraph({node, lines, length, view}, complete) {
    const last = lines[lines.length - 1];
    if (view.lines === lines.length && view.last === last && (view.whole || !complete)) return;
    const goesOn = view.lines > 0 && view.lines <= lines.length && lines[view.lines - 1].startsWith(view.last);
    view.whole = complete || length <= MarkdownView.LONG || length >= 1.25 * view.parsed || !goesOn;
    if (view.whole) {
      node.replaceChildren();
      MarkdownView.inline(lines.join("\n"), node);
      view.parsed = length;
    } else {
      const more = [lines[view.lines - 1].slice(view.last.length), ...lines.slice(view.lines)];
      node.append(document.createTextNode(more.join("\n")));
    }
    view.lines = lines.length;
    view.last = last;
  }

  addHeading(level, text) {
    this.noteBlank();
    // The page has headings of its own above these.
    const node = this.add(this.top.node, MarkdownView.make("h" + Math.min(6, level + 2), "level" + level));
    node.setAttribute("dir", "auto");
    MarkdownView.inline(text.trim(), node);
    this.tip = node;
  }

  openCode(leaf, language) {
    this.noteBlank();
    const box = MarkdownView.make("div", "code"), bar = MarkdownView.make("div", "bar-of-code");
    const name = MarkdownView.make("span", "language", language);
    const copy = MarkdownView.make("button", "copy", "Copy");
    copy.setAttribute("type", "button");
    copy.setAttribute("aria-label", "Copy code");
    bar.append(name, copy);
    const pre = MarkdownView.make("pre"), code = MarkdownView.make("code");
    pre.setAttribute("tabindex", "0");
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", language ? "Code in " + language : "Code");
    pre.append(code);
    box.append(bar, pre);
    this.add(this.top.node, box);
    this.leaf = {...leaf, code, tail: null, some: false};
  }
  addCode(s) {
    const leaf = this.leaf, piece = leaf.some ? (leaf.blanks ?? "") + "\n" + s : s;
    leaf.some = true;
    leaf.blanks = "";
    this.tip = leaf.code;
    if (!this.log && leaf.tail && leaf.tail.length < MarkdownView.LONG) {
      leaf.tail.appendData(piece);
      return;
    }
    const node = this.add(leaf.code, document.createTextNode(piece));
    if (!this.log) leaf.tail = node;
  }

  // The last line of the open paragraph is the head of a table when `t` says how its columns are aligned.
  openTable(t) {
    if (!t.includes("|") || !/^[-:| \t]+$/.test(t)) return false;
    const marks = MarkdownView.cells(t);
    if (marks.length > MarkdownView.MOST_COLUMNS || !marks.every(m => /^:?-+:?$/.test(m))) return false;
    const leaf = this.leaf, head = leaf.lines[leaf.lines.length - 1];
    const names = head.includes("|") ? MarkdownView.cells(head) : [];
    if (names.length !== marks.length) return false;
    if (leaf.lines.length === 1) this.drop(leaf.node);
    else this.showParagraph({...leaf, lines: leaf.lines.slice(0, -1), length: leaf.length - head.length - 1}, true);
    const columns = marks.map(m => m.endsWith(":") ? m.startsWith(":") ? "middle" : "right" : "");
    const box = MarkdownView.make("div", "wide"), table = MarkdownView.make("table");
    box.setAttribute("tabindex", "0");
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Table");
    const top = MarkdownView.make("thead"), body = MarkdownView.make("tbody");
    table.append(top, body);
    box.append(table);
    this.add(this.top.node, box);
    this.leaf = {kind: "table", body, columns};
    this.addRow(top, "th", columns, names);
    return true;
  }
  addRow(into, tag, columns, texts) {
    const tr = MarkdownView.make("tr");
    columns.forEach((kind, i) => {
      const cell = MarkdownView.make(tag, kind);
      MarkdownView.inline(texts[i] ?? "", cell);
      tr.append(cell);
      this.tip = cell;
    });
    this.add(into, tr);
  }

  // ---- lines ----

  static LONG = 4096;        // characters that may be parsed again with each piece
  static DEEPEST = 32;       // containers in one another; a list and its item are two
  static MOST_COLUMNS = 64;
  static INLINE_DEPTH = 16;  // of emphasis and links in one another

  static make(tag, kind, text) {
    const e = document.createElement(tag);
    if (kind) e.className = kind;
    if (text) e.append(document.createTextNode(text));
    return e;
  }
  static isBlank(s) { return /^[ \t]*$/.test(s); }
  // Columns of white space at the beginning, as far as they can matter.
  static indent(s) {
    let n = 0;
    for (let i = 0; n < 32; ++i) {
      if (s[i] === " ") ++n;
      else if (s[i] === "\t") n += 4 - n % 4;
      else break;
    }
    return n;
  }
  // Without so many columns of it.
  static strip(s, columns) {
    let n = 0, i = 0;
    for (; n < columns; ++i) {
      if (s[i] === " ") ++n;
      else if (s[i] === "\t") n += 4 - n % 4;
      else break;
    }
    return " ".repeat(Math.max(0, n - columns)) + s.slice(i);
  }
  static unquoted(s) {
    const m = /^ {0,3}>[ \t]?/.exec(s);
    return m ? s.slice(m[0].length) : null;
  }
  static marker(s) {
    const m = /^( {0,3})([-+*]|\d{1,9}[.)])(?=[ \t]|$)/.exec(s);
    if (!m) return null;
    const rest = s.slice(m[0].length), empty = MarkdownView.isBlank(rest);
    const gap = empty ? 1 : MarkdownView.indent(rest);
    const taken = gap > 4 ? 1 : gap, ordered = m[2].length > 1;
    return {ordered, empty, mark: m[2].at(-1), number: ordered ? parseInt(m[2], 10) : 0,
      indent: m[0].length + taken, rest: MarkdownView.strip(rest, taken)};
  }
  static isRule(s) {
    const c = /^ {0,3}([-*_])/.exec(s)?.[1];
    let n = 0;
    for (const each of c ? s : "") {
      if (each === c) ++n;
      else if (each !== " " && each !== "\t") return false;
    }
    return n >= 3;
  }
  static closesFence(s, fence) {
    const m = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(s);
    return m !== null && m[1][0] === fence[0] && m[1].length >= fence.length;
  }
  static startsBlock(s) {
    if (MarkdownView.indent(s) >= 4) return false;
    return /^ {0,3}(?:>|#{1,6}(?:[ \t]|$)|`{3,}[^`]*$|~{3,})/.test(s) || MarkdownView.isRule(s) || MarkdownView.marker(s) !== null;
  }
  static withoutClosingHashes(s) {
    const t = s.trimEnd();
    let i = t.length;
    while (i > 0 && t[i - 1] === "#") --i;
    return i === 0 || t[i - 1] === " " || t[i - 1] === "\t" ? t.slice(0, i) : t;
  }
  // The cells of a row of a table.
  static cells(s) {
    const out = [];
    let cell = "";
    const t = s.trim();
    for (let i = t[0] === "|" ? 1 : 0, from = i; i <= t.length; ++i) {
      if (t[i] === "\\" && t[i + 1] === "|") {
        cell += t.slice(from, i);
        from = ++i;
      } else if (i === t.length || t[i] === "|") {
        if (i < t.length || i > from || cell) out.push((cell + t.slice(from, i)).trim());
        cell = "";
        from = i + 1;
      }
    }
    return out;
  }

  // ---- inline ----

  static inline(text, into) {
    new MarkdownInline(text).write(into);
  }
  static isLink(url) { return /^(?:https?:\/\/[^\s/]|mailto:[^\s])/i.test(url) && !/[\u0000-\u0020\u007f]/.test(url); }
}

// Text within a block, read from left to right into a flat list of parts; emphasis and links are pairs of them.
class MarkdownInline {
  constructor(text) {
    this.text = text;
    this.parts = [];      // {text}, {code}, {lineBreak}, {run, opens, closes}, {href} and what ends it, {end}
    this.plain = 0;       // where text begins that is not in a part yet
    this.brackets = [];   // that may open a link
    this.inactive = 0;    // so many of them lie around a link
    this.last = null;     // of the runs of * _ ~ that are not paired yet
    this.runs = 0;
    this.absent = new Set();  // what does not come again
    this.ticks = null;    // the places of backticks, by how many there are
    this.read();
    this.pair(null);
  }

  read() {
    const s = this.text, special = /[\\`*_~[\]!<\n$]|https?:\/\//gi;
    for (let m; (m = special.exec(s));) {
      const at = m.index;
      const next = this.readAt(s, at, m[0]);
      special.lastIndex = Math.max(next, at + 1);
    }
    this.flush(s.length);
  }

  flush(end) {
    if (end > this.plain) this.parts.push({text: this.text.slice(this.plain, end)});
    this.plain = end;
  }
  // A part instead of the text from `at` to `end`.
  put(part, at, end) {
    this.flush(at);
    this.parts.push(part);
    this.plain = end;
    return end;
  }

  // What begins at a special character; returns where to go on.
  readAt(s, at, what) {
    switch (what) {
      case "\\": return this.escape(s, at);
      case "`": return this.code(s, at);
      case "*": case "_": case "~": return this.run(s, at);
      case "[": return this.bracket(at, at + 1, false);
      case "!": return s[at + 1] === "[" ? this.bracket(at, at + 2, true) : at + 1;
      case "]": return this.link(s, at);
      case "<": return this.angle(s, at);
      case "\n": return this.newline(s, at);
      case "$": return s[at + 1] === "$" ? this.verbatim(s, at, "$$") : at + 1;
      default: return this.bareLink(s, at);
    }
  }

  find(s, what, from) {
    if (this.absent.has(what)) return -1;
    const at = s.indexOf(what, from);
    if (at < 0) this.absent.add(what);
    return at;
  }
  verbatim(s, at, closer) {
    const end = this.find(s, closer, at + 2);
    return end < 0 ? at + 2 : end + 2;
  }
  escape(s, at) {
    const next = s[at + 1];
    if (next === "\n") return this.put({lineBreak: true}, at, at + 2);
    if (next === "(") return this.verbatim(s, at, "\\)");
    if (next === "[") return this.verbatim(s, at, "\\]");
    if (next === ")" || next === "]") return at + 2;
    if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) return this.put({text: next}, at, at + 2);
    return at + 1;
  }
  code(s, at) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const {0: ticks, index} of s.matchAll(/`+/g)) {
        if (!this.ticks.has(ticks.length)) this.ticks.set(ticks.length, {places: [], next: 0});
        this.ticks.get(ticks.length).places.push(index);
      }
    }
    let n = 1;
    while (s[at + n] === "`") ++n;
    const list = this.ticks.get(n);
    if (!list) return at + n;  // part of a run whose beginning was escaped
    while (list.next < list.places.length && list.places[list.next] < at + n) ++list.next;
    if (list.next === list.places.length) return at + n;
    const end = list.places[list.next];
    let code = s.slice(at + n, end).replaceAll("\n", " ");
    if (code.length > 2 && code[0] === " " && code.at(-1) === " " && !MarkdownView.isBlank(code)) code = code.slice(1, -1);
    return this.put({code}, at, end + n);
  }
  newline(s, at) {
    let spaces = 0;
    while (at - spaces > this.plain && s[at - spaces - 1] === " ") ++spaces;
    return spaces >= 2 ? this.put({lineBreak: true}, at - spaces, at + 1) : at + 1;
  }
  angle(s, at) {
    const inner = /<((?:https?:\/\/|mailto:)[^\s<>]+|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})>/iy;
    inner.lastIndex = at;
    const m = inner.exec(s);
    if (!m) return at + 1;
    const href = /^(?:https?:\/\/|mailto:)/i.test(m[1]) ? m[1] : "mailto:" + m[1];
    return MarkdownView.isLink(href) ? this.whole(href, m[1], at, at + m[0].length) : at + 1;
  }
  bareLink(s, at) {
    if (at > 0 && /[\p{L}\p{N}]/u.test(s[at - 1])) return at + 1;
    const url = /https?:\/\/[^\s<>[\]"`|\\^{}]+/iy;
    url.lastIndex = at;
    const found = url.exec(s)?.[0] ?? "";
    let end = found.length, open = 0;
    for (const c of found) open += c === "(" ? 1 : c === ")" ? -1 : 0;
    for (; end > 0; --end) {
      const c = found[end - 1];
      if (c === ")" && open < 0) ++open;
      else if (!/[?!.,:;*_~']/.test(c)) break;
    }
    const href = found.slice(0, end);
    return MarkdownView.isLink(href) ? this.whole(href, href, at, at + end) : at + 4;
  }
  whole(href, text, at, end) {
    this.put({href}, at, at);
    this.parts.push({text}, {end: true});
    this.plain = end;
    return end;
  }

  bracket(at, end, image) {
    const part = {text: image ? "![" : "["};
    this.put(part, at, end);
    this.brackets.push({part, image, last: this.last});
    return end;
  }
  link(s, at) {
    const opener = this.brackets.pop();
    const active = opener && (opener.image || this.brackets.length >= this.inactive);
    this.inactive = Math.min(this.inactive, this.brackets.length);
    if (!active) return at + 1;
    const target = MarkdownInline.target(s, at + 1);
    if (!target || !MarkdownView.isLink(target.href)) return at + 1;
    delete opener.part.text;
    Object.assign(opener.part, {href: target.href, title: target.title});
    this.put({end: true}, at, target.end);
    this.pair(opener.last);
    if (!opener.image) this.inactive = this.brackets.length;  // no links in links
    return target.end;
  }
  // "(url "title")".
  static target(s, at) {
    if (s[at] !== "(") return null;
    const space = i => {
      while (s[i] === " " || s[i] === "\t" || s[i] === "\n") ++i;
      return i;
    };
    const from = space(at + 1), longest = from + 4096;
    let i = from, href;
    if (s[from] === "<") {
      while (++i < longest && i < s.length && s[i] !== ">" && s[i] !== "<" && s[i] !== "\n") continue;
      if (s[i] !== ">") return null;
      href = s.slice(from + 1, i++);
    } else {
      for (let depth = 0; i < s.length && i < longest; ++i) {
        const c = s[i];
        if (c === "\\" && i + 1 < s.length) ++i;
        else if (c === "(" && ++depth > 32) return null;
        else if (c === ")" && --depth < 0) break;
        else if (c <= " ") break;
      }
      href = s.slice(from, i);
    }
    href = href.replace(/\\([!-/:-@[-`{-~])/g, "$1");
    let end = space(i), title;
    const quote = {"\"": "\"", "'": "'", "(": ")"}[s[end]];
    if (quote && end > i) {
      const begin = end + 1;
      for (end = begin; end < s.length && end < begin + 1024 && s[end] !== quote; ++end) if (s[end] === "\\") ++end;
      if (s[end] !== quote) return null;
      title = s.slice(begin, end);
      end = space(end + 1);
    }
    return s[end] === ")" ? {href, title, end: end + 1} : null;
  }

  run(s, at) {
    const c = s[at];
    let n = 1;
    while (s[at + n] === c) ++n;
    if (c === "~" && n !== 2) return at + n;
    // A character of two code units counts as a letter.
    const before = at > 0 ? s[at - 1] : " ", after = at + n < s.length ? s[at + n] : " ";
    const blank = /\s/, mark = /[\p{P}\p{S}]/u;
    const left = !blank.test(after) && (!mark.test(after) || blank.test(before) || mark.test(before));
    const right = !blank.test(before) && (!mark.test(before) || blank.test(after) || mark.test(after));
    const opens = left && (c !== "_" || !right || mark.test(before));
    const closes = right && (c !== "_" || !left || mark.test(after));
    if (!opens && !closes) return at + n;
    const part = {run: c, left: n, opens: [], closes: []};
    this.put(part, at, at + n);
    const run = {part, c, all: n, opens, closes, number: ++this.runs, before: this.last, after: null};
    if (this.last) this.last.after = run;
    this.last = run;
    return at + n;
  }
  remove(run) {
    if (run.before) run.before.after = run.after;
    if (run.after) run.after.before = run.before;
    else this.last = run.before;
  }
  // Pairs the runs after `bottom`, as CommonMark has it; none of them is left for later.
  pair(bottom) {
    let closer = this.last;
    if (closer === bottom || !closer) return;
    while (closer.before && closer.before !== bottom) closer = closer.before;
    const lowest = {};  // where a search for an opener that was not found ended, by what was searched for
    while (closer) {
      if (!closer.closes) {
        closer = closer.after;
        continue;
      }
      const kind = closer.c + (closer.opens ? "o" : "") + closer.all % 3, limit = lowest[kind] ?? 0;
      let opener = closer.before;
      for (; opener && opener !== bottom && opener.number > limit; opener = opener.before)
        if (opener.opens && opener.c === closer.c &&
            !((opener.closes || closer.opens) && (opener.all + closer.all) % 3 === 0 && (opener.all % 3 || closer.all % 3)))
          break;
      if (!opener || opener === bottom || opener.number <= limit) {
        lowest[kind] = closer.number - 1;
        const next = closer.after;
        if (!closer.opens) this.remove(closer);
        closer = next;
        continue;
      }
      const n = closer.part.left >= 2 && opener.part.left >= 2 ? 2 : 1;
      const tag = closer.c === "~" ? "del" : n === 2 ? "strong" : "em";
      opener.part.opens.push(tag);
      closer.part.closes.push(tag);
      opener.part.left -= n;
      closer.part.left -= n;
      opener.after = closer;  // what lies between stays text
      closer.before = opener;
      if (opener.part.left === 0) this.remove(opener);
      if (closer.part.left === 0) {
        const next = closer.after;
        this.remove(closer);
        closer = next;
      }
    }
    if (bottom) bottom.after = null;
    this.last = bottom;
  }

  write(into) {
    const stack = [into];
    let text = "", inLink = 0;
    const top = () => stack[stack.length - 1];
    const flush = () => {
      if (text) top().append(document.createTextNode(text));
      text = "";
    };
    // Beyond the bound the content goes to where it stands.
    const open = node => {
      flush();
      if (node && stack.length <= MarkdownView.INLINE_DEPTH) {
        top().append(node);
        stack.push(node);
      } else {
        stack.push(top());
      }
    };
    const close = () => {
      flush();
      return stack.pop();
    };
    for (const part of this.parts) {
      if (part.text !== undefined) {
        text += part.text;
      } else if (part.run) {
        part.closes.forEach(close);
        text += part.run.repeat(part.left);
        for (let i = part.opens.length; i-- > 0;) open(MarkdownView.make(part.opens[i]));
      } else if (part.code !== undefined) {
        flush();
        top().append(MarkdownView.make("code", "", part.code));
      } else if (part.lineBreak) {
        flush();
        top().append(MarkdownView.make("br"));
      } else if (part.href) {
        const a = inLink++ ? null : MarkdownView.make("a");
        if (a) {
          a.setAttribute("href", part.href);
          a.setAttribute("rel", "noopener noreferrer");
          a.setAttribute("target", "_blank");
          if (part.title) a.setAttribute("title", part.title);
        }
        open(a);
        part.node = a;
        (this.openLinks ??= []).push(part);
      } else if (part.end) {
        --inLink;
        close();
        const {node, href} = this.openLinks.pop();
        if (node && !node.firstChild) node.append(document.createTextNode(href));
      }
    }
    flush();
  }
}
