// What a rank of several holds and what its step exchanges, as a part of the HTML report.
#include "see/explain.h"
#include "see/html_report.h"

namespace reprise::see {

std::string rank_section(const RankContents& r) {
  std::string out = fmt::format(
      "<h2 id=\"ranks\">Rank {} of {}</h2>\n<p class=\"soft\">It holds {} of weights and {} of KV cache; the memory "
      "that "
      "all ranks exchange in has {}. A collective gives all ranks the whole row, of which this one writes its "
      "part.</p>\n<div class=\"box\"><table><tr><th>collective</th><th class=\"n\">a step</th><th class=\"n\">bytes a "
      "row</th><th class=\"n\">of this rank</th></tr>\n",
      r.rank, r.ranks, bytes_in_words(static_cast<double>(r.weight_bytes)),
      bytes_in_words(static_cast<double>(r.kv_bytes)), bytes_in_words(static_cast<double>(r.exchange_bytes)));
  for (const Exchange& x : r.exchanges)
    out += fmt::format(
        "<tr><td class=\"mono\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        escape_html(x.op), x.count, x.row_bytes, x.own_bytes);
  out +=
      "</table></div>\n<p class=\"soft\" style=\"margin-top:14px\">Its parameters: the part in brackets is the first "
      "row "
      "(matrix, head) that is here, how many, and of how many; those without are whole on every rank.</p>\n"
      "<div class=\"box\"><table><tr><th>parameter</th><th>part</th><th class=\"n\">of so many layers</th><th "
      "class=\"n\">bytes</th></tr>\n";
  for (const Held& h : r.held)
    out += fmt::format(
        "<tr><td class=\"mono\">{}</td><td class=\"mono\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        escape_html(h.name), escape_html(h.part.empty() ? "whole" : h.part), h.count,
        bytes_in_words(static_cast<double>(h.bytes)));
  return out + "</table></div>\n";
}

}  // namespace reprise::see
