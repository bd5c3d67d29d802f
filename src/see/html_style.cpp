#include "see/html_report.h"

namespace reprise::see {

std::string_view report_style() {
  return R"css(
:root { --bg: #fbfbfa; --card: #fff; --ink: #1d2125; --soft: #68707a; --line: #e2e4e7; --accent: #2563a8;
  --plus: #e3f5e5; --plus-ink: #14602b; --minus: #fde8e7; --minus-ink: #8f1d18; --bar: #7fb0e0; --wait: #c9ced6; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --card: #1c2024; --ink: #dfe3e8; --soft: #929aa4;
  --line: #32383f; --accent: #7db4ee; --plus: #16331d; --plus-ink: #8fdaa2; --minus: #3c1c1b; --minus-ink: #f3a29d;
  --bar: #2f6299; --wait: #4b525b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
main { max-width: 1400px; margin: 0 auto; padding: 24px 20px 80px; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 17px; margin: 36px 0 8px; }
p { margin: 4px 0 10px; max-width: 90ch; } .soft { color: var(--soft); }
nav a { color: var(--accent); margin-right: 14px; text-decoration: none; }
code, pre, .mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 14px;
  min-width: 118px; }
.card b { display: block; font-size: 18px; font-weight: 600; } .card span { color: var(--soft); font-size: 12px; }
.box { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px;
  overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.w { white-space: nowrap; } td.mono { font-size: 11px; }
tr:last-child td { border-bottom: 0; }
.bar { position: relative; min-width: 160px; } .bar i { display: inline-block; height: 11px; background: var(--bar); }
.bar i.w { background: var(--wait); }
details { margin: 0; } summary { cursor: pointer; padding: 3px 0; } details details { margin-left: 14px; }
.pass > summary { display: grid; grid-template-columns: minmax(220px, 1.4fr) repeat(5, minmax(70px, .6fr));
  gap: 8px; }
.pass > summary::before { content: none; } .pass { border-bottom: 1px solid var(--line); }
.pass > summary span { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.pass > summary span:first-child { text-align: left; } .pass.idle > summary { color: var(--soft); }
.pass > summary span:first-child::before { content: "\25B8\00A0"; }
  .pass[open] > summary span:first-child::before { content: "\25BE\00A0"; }
.passhead { display: grid; grid-template-columns: minmax(220px, 1.4fr) repeat(5, minmax(70px, .6fr)); gap: 8px;
  color: var(--soft);
  border-bottom: 1px solid var(--line); } .passhead span { text-align: right; }
  .passhead span:first-child { text-align: left; }
pre { margin: 4px 0 10px; overflow-x: auto; line-height: 1.45; }
pre span { display: block; padding: 0 6px; white-space: pre; min-width: max-content; }
pre .p { background: var(--plus); color: var(--plus-ink); } pre .m { background: var(--minus);
  color: var(--minus-ink); }
ul.why { margin: 4px 0 8px; padding-left: 20px; } ul.why li { color: var(--soft); }
.tag { border-radius: 4px; padding: 0 5px; font-size: 11px; border: 1px solid var(--line); color: var(--soft); }
svg { display: block; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg rect:hover { filter: brightness(1.25); } .axis { stroke: var(--line); } .live { fill: none; stroke: var(--ink); }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
tbody.layer > tr:first-child { cursor: pointer; background: color-mix(in srgb, var(--line) 35%, transparent); }
tbody.folded > tr:not(:first-child) { display: none; }
input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 3px 8px; }
input[type=range] { padding: 0; vertical-align: middle; }
@media (max-width: 700px) { svg .odd { display: none; } }
)css";
}

std::string_view report_script() {
  return R"js(
document.querySelectorAll('tbody.layer').forEach(function (t) {
  t.rows[0].addEventListener('click', function () { t.classList.toggle('folded'); });
});
document.querySelectorAll('input.find').forEach(function (field) {
  field.addEventListener('input', function () {
    var word = field.value.toLowerCase();
    document.querySelectorAll('#' + field.dataset.of + ' tbody.layer').forEach(function (t) {
      var any = false;
      for (var i = 1; i < t.rows.length; i++) {
        var hit = !word || t.rows[i].textContent.toLowerCase().indexOf(word) >= 0;
        t.rows[i].style.display = hit ? '' : 'none';
        any = any || hit;
      }
      t.style.display = any ? '' : 'none';
      if (word) t.classList.remove('folded');
    });
  });
});
document.querySelectorAll('input.zoom').forEach(function (field) {
  field.addEventListener('input', function () {
    document.querySelector('#' + field.dataset.of + ' svg').style.width = field.value * 100 + '%';
  });
});
)js";
}

}  // namespace reprise::see
