"use strict";
// src/server/page/markdown.js: what the forms become, pieces and wholes alike, and hostile text.
const {assert, document, Element, Text, show, nodes, load, run} = require("./stand_in.js");

const MarkdownView = load(["markdown.js"], "MarkdownView");

function rendered(pieces) {
  const root = document.createElement("div"), view = new MarkdownView(root);
  for (const piece of pieces) view.push(piece);
  view.finish();
  return root;
}
const html = text => show(rendered([text])).slice(5, -6).replaceAll("<div.bar-of-code>", "").replaceAll(
  /<span.language>([^<]*)<\/span><button.copy>Copy<\/button><\/div>/g, "[$1]");
const is = (text, expected) => assert.equal(html(text), expected);

// Texts with all forms; each is also given in pieces.
const kTexts = [
  "# One\n\nSome *text* and **more**.\n\n- a\n- b\n  - c\n\n1. x\n2. y\n",
  "para\nsecond line  \nthird\\\nfourth\n\n---\n\n> quote\n> more\nlazy\n\n> > two\n",
  "```python\ndef f(x):\n    return x ** 2\n\n\n# end\n```\nafter\n",
  "- item\n\n  para in item\n\n      code in item\n\n  ```\n  fence in item\n\n  more\n  ```\n- next\n\n\nend",
  "| a | b |\n|---|:-:|\n| 1 | `x` |\n| 2 |\n\ntext | not a table\n\nhead\nof | two\n--|--\nx | y\nend",
  "Title\n=====\nother\n-----\n\ntext\n--\n",
  "    indented\n\n      more\n\n\ttab\nend\n",
  "a `code ``with`` ticks` b ``x ` y`` ~~gone~~ ~one~ [t](https://x.y \"title\") ![i](http://z) <https://a.b> <c@d.ef>",
  "***both*** **bold *in* bold** _a_b_ snake_case_name *a*b 2 * 3 * 4 **not closed\n",
  "\\(a_1 * b_1 * c\\) and $$x_i * y_i$$ and \\[ z_* \\] \\*no\\* 50$ $ $\n",
  "1) a\n2) b\n\n7. seven\n8. eight\n\n* x\n+ y\n- - nested\n",
  "<script>alert(1)</script>\n<div>\n  <b>x</b>\n</div>\n",
  "~~~\ntilde ``` inside\n~~~~\n\n````md\n```\ninner\n```\n````\n\n```open\nnever closed",
  "\r\nwindows\r\n\r\n- a\r\n- b\r\n",
  "1. one\n   ```js\n   f();\n   ```\n2. two\n   - a\n\n     b\n3. three\n\n4. four\n",
];

// Of this process alone, so that a busy machine does not count.
function cpuTime(what) {
  const begin = process.cpuUsage();
  what();
  return process.cpuUsage(begin).user / 1000;
}
function isLinear(name, what, n, least) {
  cpuTime(() => what(n));
  const one = Math.max(least, cpuTime(() => what(n)));
  let eight = Infinity;
  for (let i = 0; i < 3 && eight > 24 * one; ++i) eight = cpuTime(() => what(8 * n));
  assert.ok(eight <= 24 * one, `${name}: ${one.toFixed(0)} ms, and ${eight.toFixed(0)} ms for eight times as much`);
  if (process.argv.includes("--times")) console.log(`${name}: ${n} in ${one.toFixed(0)} ms, ${8 * n} in ${eight.toFixed(0)} ms`);
}

const checks = {
  headings() {
    is("# One\n## Two ##\n#### Four\n###### Six", "<h3.level1>One</h3><h4.level2>Two</h4><h6.level4>Four</h6><h6.level6>Six</h6>");
    is("####### seven\n\n#none", "<p>####### seven</p><p>#none</p>");
    is("One\n===\n\ntwo *em*\n---", "<h3.level1>One</h3><h4.level2>two <em>em</em></h4>");
    is("# C#", "<h3.level1>C#</h3>");
  },
  paragraphsKeepTheirLines() {
    is("a\nb\n\n  c   d\n", "<p>a\nb</p><p>  c   d</p>");
    is("a  \nb\\\nc", "<p>a<br></br>b<br></br>c</p>");
    is("just text, as typed: 3 < 4 & so on", "<p>just text, as typed: 3 &lt; 4 &amp; so on</p>");
  },
  emphasis() {
    is("*a* _b_ **c** __d__ ***e*** ~~f~~", "<p><em>a</em> <em>b</em> <strong>c</strong> <strong>d</strong> " +
      "<em><strong>e</strong></em> <del>f</del></p>");
    is("**a *b* c** *a **b** c*", "<p><strong>a <em>b</em> c</strong> <em>a <strong>b</strong> c</em></p>");
    is("snake_case_name 2 * 3 * 4 f(*args, **kwargs)", "<p>snake_case_name 2 * 3 * 4 f(*args, **kwargs)</p>");
    is("**not closed", "<p>**not closed</p>");
    is("a*b*c ~one~ ~~~three~~~", "<p>a<em>b</em>c ~one~ ~~~three~~~</p>");
    is("**bold:** text, **“quoted”** text", "<p><strong>bold:</strong> text, <strong>“quoted”</strong> text</p>");
    is("*a **b* c**", "<p><em>a <em><em>b</em> c</em></em></p>");
    is("\\*no\\* \\_no\\_ C:\\dir", "<p>*no* _no_ C:\\dir</p>");
  },
  codeSpans() {
    is("`a` ``b ` c`` ` d ` `*x*`", "<p><code>a</code> <code>b ` c</code> <code>d</code> <code>*x*</code></p>");
    is("`open ``two", "<p>`open ``two</p>");
    is("`<b>`", "<p><code>&lt;b></code></p>");
    is("**a `**` b**", "<p><strong>a <code>**</code> b</strong></p>");
  },
  links() {
    const rel = rendered(["[a](https://x.y \"t\")"]).childNodes[0].childNodes[0];
    assert.equal(rel.getAttribute("rel"), "noopener noreferrer");
    assert.equal(rel.getAttribute("target"), "_blank");
    assert.equal(rel.getAttribute("title"), "t");
    is("[a *b*](https://x.y/(z)?q=1&r=2)", '<p><a href="https://x.y/(z)?q=1&r=2">a <em>b</em></a></p>');
    is("<https://x.y> <m@x.y> <mailto:m@x.y>", '<p><a href="https://x.y">https://x.y</a> <a href="mailto:m@x.y">m@x.y</a> ' +
      '<a href="mailto:m@x.y">mailto:m@x.y</a></p>');
    is("see https://x.y/a_b_c, (https://x.y/(a)). **https://x.y**", '<p>see <a href="https://x.y/a_b_c">https://x.y/a_b_c</a>, ' +
      '(<a href="https://x.y/(a)">https://x.y/(a)</a>). <strong><a href="https://x.y">https://x.y</a></strong></p>');
    is("[https://x.y](https://x.y)", '<p><a href="https://x.y">https://x.y</a></p>');
    is("[](http://x.y)", '<p><a href="http://x.y">http://x.y</a></p>');
    is("![alt](https://x.y/i.png)", '<p><a href="https://x.y/i.png">alt</a></p>');
    is("[a [b](https://x.y) c](https://z)", '<p>[a <a href="https://x.y">b</a> c](<a href="https://z">https://z</a>)</p>');
    is("[a](<https://x.y/a b>)", '<p>[a](&lt;<a href="https://x.y/a">https://x.y/a</a> b>)</p>');
    is("*a [b*](https://x.y)", '<p>*a <a href="https://x.y">b*</a></p>');
    is("[ref][1] [x] array[0](1)", "<p>[ref][1] [x] array[0](1)</p>");
  },
  otherLinksAreText() {
    for (const url of ["javascript:alert(1)", "JavaScript:alert(1)", "java\tscript:alert(1)", " javascript:alert(1)",
                       "data:text/html,<script>alert(1)</script>", "vbscript:x", "file:///etc/passwd", "//x.y", "/x", "#x",
                       "blob:x", "http:x", "https:/x", "https://", "\u0001javascript:alert(1)", "&#106;avascript:alert(1)"])
      for (const text of [`[a](${url})`, `<${url}>`, `![a](${url})`, `[a](<${url}>)`, `**[a](${url} "t")**`])
        for (const node of nodes(rendered([text]))) assert.notEqual(node.tag, "a", text);
  },
  codeBlocks() {
    is("```python\nx = 1\n\n  y\n```\nafter", "<div.code>[python]<pre><code>x = 1\n\n  y</code></pre></div><p>after</p>");
    is("~~~\na\n```\n~~~~", "<div.code>[]<pre><code>a\n```</code></pre></div>");
    assert.equal(rendered(["```c\n\tif (x)\n\t\ty;\n"]).childNodes[0].childNodes[1].textContent, "\tif (x)\n\t\ty;");
    assert.equal(rendered(["```\n<b>&amp;</b>"]).childNodes[0].childNodes[1].textContent, "<b>&amp;</b>");
    assert.equal(rendered(["    a\n\n\n      b\n\nc"]).childNodes[0].childNodes[1].textContent, "a\n\n\n  b");
    is("a\n    b", "<p>a\n    b</p>");
    is("``` not`a fence", "<p>``` not`a fence</p>");
    const button = rendered(["```js\nx"]).childNodes[0].childNodes[0].childNodes[1];
    assert.equal(button.getAttribute("type"), "button");
    assert.equal(button.getAttribute("aria-label"), "Copy code");
  },
  lists() {
    is("- a\n- b\n  - c\n    - d\n- e", "<ul.tight><li><p>a</p></li><li><p>b</p><ul.tight><li><p>c</p><ul.tight><li><p>d</p></li>" +
      "</ul></li></ul></li><li><p>e</p></li></ul>");
    is("3. a\n4. b", '<ol.tight start="3"><li><p>a</p></li><li><p>b</p></li></ol>');
    is("- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>");
    is("1. a\n   - b\n2. c", "<ol.tight><li><p>a</p><ul.tight><li><p>b</p></li></ul></li><li><p>c</p></li></ol>");
    is("1. a\n\n   b\n\nc", "<ol><li><p>a</p><p>b</p></li></ol><p>c</p>");
    is("- a\nlazy\n* b", "<ul.tight><li><p>a\nlazy</p></li></ul><ul.tight><li><p>b</p></li></ul>");
    is("in 1986.\n1986. was\n-5 degrees\n+ sum", "<p>in 1986.\n1986. was\n-5 degrees</p><ul.tight><li><p>sum</p></li></ul>");
    is("- ```\n  x\n  ```\n- b", "<ul.tight><li><div.code>[]<pre><code>x</code></pre></div></li>" +
      "<li><p>b</p></li></ul>");
  },
  quotesAndRules() {
    is("> a\n> b\nlazy\n\n> > c", "<blockquote><p>a\nb\nlazy</p></blockquote><blockquote><blockquote><p>c</p></blockquote></blockquote>");
    is("> - a\n>   b\n\nc", "<blockquote><ul.tight><li><p>a\nb</p></li></ul></blockquote><p>c</p>");
    is("---\n* * *\n___\n--", "<hr></hr><hr></hr><hr></hr><p>--</p>");
  },
  tables() {
    is("| a | b |\n|---|--:|\n| *1* | x\\|y |\n| 2 |", "<div.wide><table><thead><tr><th>a</th><th.right>b</th></tr></thead><tbody>" +
      "<tr><td><em>1</em></td><td.right>x|y</td></tr><tr><td>2</td><td.right></td></tr></tbody></table></div>");
    is("before\na|b\n-|-\n1|2\nafter", "<p>before</p><div.wide><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>" +
      "<tr><td>1</td><td>2</td></tr></tbody></table></div><p>after</p>");
    is("a | b\n--- | --- | ---", "<p>a | b\n--- | --- | ---</p>");
    is("a | b\nno", "<p>a | b\nno</p>");
  },
  htmlIsText() {
    is("<script>alert(1)</script><img src=x onerror=alert(1)>", "<p>&lt;script>alert(1)&lt;/script>&lt;img src=x onerror=alert(1)></p>");
    for (const text of kTexts)
      for (const node of nodes(rendered([text])))
        if (node instanceof Element)
          assert.ok(["div", "p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "pre", "code", "span", "button", "blockquote", "table",
            "thead", "tbody", "tr", "th", "td", "em", "strong", "del", "a", "br", "hr"].includes(node.tag), node.tag);
  },
  formulasStayAsTyped() {
    is("\\(a_1 * b_1 * c\\), $$x_i * y_i$$ and \\[ *z* \\]", "<p>\\(a_1 * b_1 * c\\), $$x_i * y_i$$ and \\[ *z* \\]</p>");
    is("\\[not a link\\](https://x.y)", '<p>\\[not a link\\](<a href="https://x.y">https://x.y</a>)</p>');
  },
  // However a text is cut, what stands there is what the whole text gives; and at each moment what the part gives.
  piecesGiveWhatTheWholeGives() {
    for (const text of kTexts) {
      const whole = show(rendered([text]));
      for (const size of [1, 2, 3, 7]) {
        const pieces = [];
        for (let i = 0; i < text.length; i += size) pieces.push(text.slice(i, i + size));
        assert.equal(show(rendered(pieces)), whole, JSON.stringify(text));
      }
      const root = document.createElement("div"), view = new MarkdownView(root);
      for (let i = 0; i < text.length; ++i) {
        view.push(text[i]);
        assert.equal(show(root), show(rendered([text.slice(0, i + 1)])), JSON.stringify(text.slice(0, i + 1)));
      }
    }
  },
  randomTextInPieces() {
    const words = ["a", "b c", "*", "**", "_", "`", "```", "~~", "[", "](", "https://x.y", ")", "\n", "\n\n", "  ", "    ", "- ", "1. ",
                   "> ", "# ", "|", "|-|-|\n", "\\", "<", ">", "!", "---", "===", "\t", "$$", "\\(", "\r\n", "~~~", "é", "😀"];
    let seed = 1;
    const next = n => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % n;
    };
    for (let i = 0; i < 2000; ++i) {
      const pieces = Array.from({length: 1 + next(40)}, () => words[next(words.length)]);
      assert.equal(show(rendered(pieces)), show(rendered([pieces.join("")])), JSON.stringify(pieces));
    }
  },
  // A long open paragraph is shown as typed in part, and as it should be at its end.
  longParagraphs() {
    const text = "**bold** and `code` ".repeat(2000);
    for (const form of [text, text.replaceAll("and", "and\n"), "# " + text, "- > " + text]) {
      const pieces = form.match(/[^]{1,100}/g);
      const root = document.createElement("div"), view = new MarkdownView(root);
      for (const piece of pieces) view.push(piece);
      assert.equal(root.textContent.replaceAll(/[*`#>-]/g, "").trim().length, text.replaceAll(/[*`]/g, "").trim().length +
        (form.includes("\n") ? 2000 : 0));
      view.finish();
      assert.equal(show(root), show(rendered([form])));
    }
  },
  // Eight times the length takes about eight times as long; what takes the square would take 64 times.
  hostileTextTakesLinearTime() {
    const kinds = {
      brackets: n => "[".repeat(n), nested: n => "[".repeat(n / 2) + "]".repeat(n / 2),
      links: n => "[a](b".repeat(n / 5), linksInBrackets: n => "[".repeat(n / 2) + "[a](http://b)".repeat(n / 26),
      images: n => "![a](".repeat(n / 5), titles: n => '[a](b "'.repeat(n / 7), angles: n => "[a](<b".repeat(n / 6),
      spaces: n => "[a](" + " ".repeat(n), stars: n => "*".repeat(n), starWords: n => "*a ".repeat(n / 3),
      starPairs: n => "*a*".repeat(n / 3), mixed: n => "*a_b**c__d".repeat(n / 10), under: n => "_a".repeat(n / 2),
      deepStars: n => "*".repeat(n / 2) + "a" + "*".repeat(n / 2), closers: n => "a**b" + "c* ".repeat(n / 3),
      ticks: n => "`".repeat(n), tickRuns: n => Array.from({length: Math.sqrt(2 * n) | 0}, (_, i) => "`".repeat(i + 1)).join(" "),
      tickWords: n => "`a ``b ".repeat(n / 7), tildes: n => "~~a".repeat(n / 3), quotes: n => ">".repeat(n),
      quoteLines: n => (">".repeat(50) + "\n").repeat(n / 51), lists: n => "- ".repeat(n / 2), deepLists: n => {
        let out = "";
        for (let i = 0; out.length < n; ++i) out += " ".repeat(2 * (i % 100)) + "- a\n";
        return out;
      },
      rules: n => "- ".repeat(n / 2) + "x", starRule: n => "*" + " ".repeat(n) + "x", fence: n => "```\n" + "x\n".repeat(n / 2),
      fences: n => "```\n".repeat(n / 4), line: n => "x".repeat(n), words: n => "word ".repeat(n / 5), code: n => "```\n" + "x".repeat(n),
      table: n => "|a".repeat(n / 2) + "\n" + "|-".repeat(n / 2), rows: n => "a|b\n-|-\n" + "c|d\n".repeat(n / 4),
      heads: n => "a|b\n" + "-|-|-\n".repeat(n / 6), pipes: n => "|".repeat(n), wideRows: n => "a|".repeat(60) + "\n" + "-|".repeat(60) +
        "\n" + "|\n".repeat(n / 120), hashes: n => "# " + "#".repeat(n), hashSpaces: n => "# " + " ".repeat(n) + "x",
      breaks: n => " ".repeat(n) + "\nx", lines: n => "a\n".repeat(n / 2), blanks: n => "\n".repeat(n), urls: n => "https://a".repeat(n / 9),
      parens: n => "https://a" + ")".repeat(n), openParens: n => "[a](" + "(".repeat(n), escapes: n => "\\".repeat(n),
      formulas: n => "\\(".repeat(n / 2), dollars: n => "$$ a $".repeat(n / 6), script: n => "<script>".repeat(n / 8),
      less: n => "<".repeat(n), mails: n => "<a.".repeat(n / 3), atMails: n => "<a@" + "a.".repeat(n / 2), bangs: n => "![".repeat(n / 2),
      underline: n => "a\n" + "=".repeat(n), indents: n => "    x\n\n".repeat(n / 7), tabs: n => "\t".repeat(n) + "x",
      lazy: n => "> a\n" + "b\n".repeat(n / 2), emptyItems: n => "-\n".repeat(n / 2),
    };
    for (const [name, make] of Object.entries(kinds)) isLinear(name, n => rendered([make(n)]), 10000, 8);
  },
  hostileTextIsNotDeep() {
    const depth = node => 1 + Math.max(0, ...(node.childNodes ?? []).map(depth));
    for (const text of [">".repeat(1e5), "- ".repeat(5e4), "*".repeat(1e5) + "a" + "*".repeat(1e5), "**_a_".repeat(1e4), "[".repeat(1e5)])
      assert.ok(depth(rendered([text])) < 80, text.slice(0, 20));
  },
  streamsTakeLinearTime() {
    const forms = {line: "word *em* ".repeat(10000), lines: "word *em* and more\n".repeat(6000), code: "```\n" + "let x = 1;\n".repeat(10000),
      codeLine: "```\n" + "let x = 1;".repeat(10000), items: "- an item with **text**\n".repeat(8000), rows: "a|b\n-|-\n" +
      "one *cell*|two\n".repeat(12000), row: "a|b\n-|-\n" + "one *cell* ".repeat(10000), heading: "# " + "word *em* ".repeat(10000),
      blocks: "A paragraph.\n\n> quote\n\n".repeat(8000)};
    for (const [name, text] of Object.entries(forms)) {
      isLinear(name, n => rendered(text.slice(0, n).match(/[^]{1,4}/g)), 4000, 25);
    }
  },
};
run(checks);
