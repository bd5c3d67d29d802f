#include "see/html_report.h"

#include <algorithm>

#include "see/explain.h"
#include "see/graph_report.h"

namespace reprise::see {
namespace {

std::string card(const std::string& value, std::string_view what) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", escape_html(value), escape_html(what));
}

std::string cards(const HtmlReport& r) {
  const CompiledModel& m = r.view.model();
  size_t barriers = 0, captured = 0;
  for (const Piece& p : m.pieces())
    if (const DeviceGraph* graph = m.graph_of(p)) {
      barriers += graph->stats().barriers;
      ++captured;
    }
  int64_t matched = 0;
  size_t ran = 0;
  for (const PassReport& p : r.view.passes->passes) {
    matched += p.matched;
    ran += p.skipped.empty() ? 1 : 0;
  }
  std::string out;
  if (r.profile) {
    const StepProfile& p = *r.profile;
    out += card(fmt::format("{:.1f} us", p.step_s * 1e6),
                fmt::format("a {} step, batch {}, context {}", p.options.phase, p.options.batch, p.options.context));
    out += p.warning().empty()
               ? card(fmt::format("{:.0f} %", 100 * p.limit_s() / std::max(p.step_s, 1e-12)), "of the machine's limit")
               : card("-", "of the machine's limit: it was busy while that was measured");
  }
  out += card(phase_mode(r.view.runner), "mode");
  out += card(fmt::format("{}", launches_of_step(m)), "launches a step");
  out += card(fmt::format("{}", barriers), "barriers between them");
  out += card(fmt::format("{} / {}", captured, m.pieces().size()), "pieces captured");
  out += card(fmt::format("{}", r.view.runner->sizes().size()), "sizes");
  out += card(bytes_in_words(static_cast<double>(m.plan().arena_bytes)), "arena");
  if (!r.view.passes->passes.empty())
    out += card(fmt::format("{} \xE2\x86\x92 {}", r.view.passes->passes.front().nodes_before,
                            r.view.passes->passes.back().nodes_after),
                "nodes, with parameters");
  out += card(fmt::format("{}", matched), fmt::format("changes by {} passes", ran));
  return "<div class=\"cards\">\n" + out + "</div>\n";
}

std::string piece_table(const CompiledModel& m) {
  std::string out =
      "<table><tr><th class=\"n\">piece</th><th></th><th class=\"n\">kernels</th><th "
      "class=\"n\">barriers</th><th>ops</th></tr>\n";
  // Pieces that repeat in twos (a stretch, then a split op) are shown once.
  std::vector<std::string> rows;
  for (const Piece& p : m.pieces())
    rows.push_back(
        fmt::format("<td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"mono\">{}</td></tr>\n",
                    escape_html(p.heads == kAllHeads
                                    ? std::string(p.captured ? "captured" : "launched")
                                    : fmt::format("{}, for {}", p.captured ? "captured" : "launched", heads_of(m, p))),
                    p.thunks.size(), m.graph_of(p) ? fmt::format("{}", m.graph_of(p)->stats().barriers) : "",
                    escape_html(ops_of(m, p))));
  for (size_t i = 0; i < rows.size(); ++i) {
    size_t again = 0;
    while (i >= 2 && i + again + 1 < rows.size() && rows[i + again] == rows[i + again - 2] &&
           rows[i + again + 1] == rows[i + again - 1])
      again += 2;
    if (again >= 2) {
      out += fmt::format(
          "<tr><td class=\"n\">{}-{}</td><td class=\"soft\" colspan=\"4\">the same two again, {} times</td></tr>\n", i,
          i + again - 1, again / 2);
      i += again - 1;
      continue;
    }
    out += fmt::format("<tr><td class=\"n\">{}</td>{}", i, rows[i]);
  }
  return out + "</table>\n";
}

// What kept patterns from matching, over all passes.
std::string near_misses(const PipelineReport& report) {
  std::string rows;
  for (const PassReport& p : report.passes)
    for (size_t i = 0; i < std::min<size_t>(p.refused.size(), 8); ++i)
      rows += fmt::format("<tr><td>{}</td><td class=\"mono\">%{}</td><td>{}</td></tr>\n", escape_html(p.name),
                          p.refused[i].at, escape_html(p.refused[i].reason));
  if (rows.empty()) return "<p>None.</p>\n";
  return "<table><tr><th>pass</th><th>at</th><th>the first thing that kept it from matching</th></tr>\n" + rows +
         "</table>\n";
}

// By place in a step, how many of the drafts that earlier runs verified came true; empty: nothing was kept.
std::string draft_table(const engine::Engine& e) {
  std::string rows;
  for (const auto& [by, places] : e.learned_drafts().all())
    for (size_t i = 0; i < places.size() && places[i].verified > 0; ++i) {
      const double share = 100.0 * static_cast<double>(places[i].accepted) / static_cast<double>(places[i].verified);
      rows += fmt::format(
          "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"bar\"><i style=\"width:{:.1f}%\"></i></td><td "
          "class=\"n\">{:.0f}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
          escape_html(by), i + 1, 0.95 * share, share, places[i].accepted, places[i].verified);
    }
  if (rows.empty()) return rows;
  return "<table><tr><th>drafter</th><th class=\"n\">place</th><th>came true</th><th class=\"n\">%</th><th "
         "class=\"n\">tokens</th><th class=\"n\">of</th></tr>\n" +
         rows + "</table>\n";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (char c : text) switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

std::string op_colour(std::string_view op) {
  uint32_t hash = 2166136261u;
  for (char c : op) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return fmt::format("hsl({},{}%,{}%)", hash % 360, 42 + hash / 360 % 25, 52 + hash / 9000 % 14);
}

std::string bytes_in_words(double bytes) {
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  return bytes >= 1e3 ? fmt::format("{:.1f} kB", bytes / 1e3) : fmt::format("{:.0f} B", bytes);
}

Result<std::string> html_report(const HtmlReport& r) {
  const CompiledModel& m = r.view.model();
  const DeviceInfo& device = r.engine.device().info();
  const StepProfile* profile = r.profile ? &*r.profile : nullptr;
  ASSIGN_OR_RETURN(const std::string passes, pass_list(*r.view.passes));
  const CriticalPath path = profile ? critical_path(*profile, m) : CriticalPath();
  ASSIGN_OR_RETURN(const std::string nodes, node_table(m, profile, profile ? &path : nullptr));
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n<title>{0} graph of "
      "{1}</title>\n<style>{2}</style>\n</head>\n<body>\n<main>\n"
      "<h1>{3} graph of {1}</h1>\n<p class=\"soft\">{4} &#183; {5} &#183; {6}</p>\n",
      escape_html(r.view.phase), escape_html(r.model), report_style(), r.view.phase == "decode" ? "Decode" : "Prefill",
      escape_html(m.graph().name()), escape_html(device.name), escape_html(dtype_name(r.engine.dtype())));
  out += "<nav>";
  if (profile) out += "<a href=\"#time\">time</a>";
  out +=
      "<a href=\"#passes\">passes</a><a href=\"#misses\">near misses</a><a href=\"#pieces\">pieces</a>"
      "<a href=\"#memory\">memory</a><a href=\"#launches\">launches</a></nav>\n";
  const std::string drafts = draft_table(r.engine);
  if (!drafts.empty()) out.insert(out.size() - std::string_view("</nav>\n").size(), "<a href=\"#drafts\">drafts</a>");
  const auto share = contents_of_rank(r.engine, m);
  if (share) out.insert(out.size() - std::string_view("</nav>\n").size(), "<a href=\"#ranks\">ranks</a>");
  out += cards(r);
  if (profile) {
    out += fmt::format(
        "<h2 id=\"time\">Time</h2>\n<p class=\"soft\">Median of {} steps: {:.1f} us, {:.1f} us with every launch "
        "timed. Busy is "
        "the mean over the threads, wait is for the other threads before the op begins. Limit: weights and KV at the "
        "{:.1f} GB/s "
        "this machine reads, or products at its peak; cache means that the op works on what the caches hold.</p>\n"
        "<div class=\"box\">{}</div>\n",
        profile->options.repeat, profile->step_s * 1e6, profile->timed_step_s * 1e6, profile->machine.read_GBps_all,
        op_table(*profile, m));
    if (const std::string warning = profile->warning(); !warning.empty())
      out += fmt::format("<p><b>Warning: {}</b></p>\n", escape_html(warning));
    out += fmt::format(
        "<p class=\"soft\" style=\"margin-top:14px\">One step, thread by thread; grey is waiting, the red line is "
        "the critical path. Zoom "
        "<input class=\"zoom\" data-of=\"timeline\" type=\"range\" min=\"1\" max=\"40\" value=\"1\"/></p>\n"
        "<div class=\"box\" id=\"timeline\">{}</div>\n",
        timeline_picture(*profile, m, path));
    out += fmt::format(
        "<p class=\"soft\" style=\"margin-top:14px\">Read backwards from its end, the step waited for what stands "
        "here; nothing else makes it shorter. By data alone its longest chain is {} of {} launches and {:.1f} us, all "
        "launches in turn take {:.1f} us; the slack of a launch below is how much longer it could take beside that "
        "chain.</p>\n<div class=\"box\">{}</div>\n",
        path.chain.size(), path.slack_s.size(), path.chain_s * 1e6, path.launches_s * 1e6, path_table(*profile, path));
  }
  out += fmt::format(
      "<h2 id=\"passes\">Passes</h2>\n<p class=\"soft\">Open one to see the whole graph afterwards, with what it took "
      "away and "
      "what it put there. Values are numbered within each part; layers that look the same are shown once.</p>\n"
      "<div class=\"box\">{}</div>\n",
      passes);
  out += fmt::format("<h2 id=\"misses\">Near misses</h2>\n<div class=\"box\">{}</div>\n", near_misses(*r.view.passes));
  if (!drafts.empty())
    out += fmt::format(
        "<h2 id=\"drafts\">Drafts</h2>\n<p class=\"soft\">What earlier runs verified, by place in a step.</p>\n"
        "<div class=\"box\">{}</div>\n",
        drafts);
  out += fmt::format("<h2 id=\"pieces\">Pieces</h2>\n<div class=\"box\">{}</div>\n", piece_table(m));
  if (share) out += rank_section(*share);
  const MemoryPlan& plan = m.plan();
  out += fmt::format(
      "<h2 id=\"memory\">Memory</h2>\n<p class=\"soft\">Every value at its place in the arena, for as long as it is "
      "needed, at the largest size ({}); hover for names.</p>\n<div class=\"box\">{}</div>\n",
      r.view.runner->largest(), memory_picture(m, plan.arena_bytes));
  if (const size_t usual = usual_height(plan); usual < plan.arena_bytes)
    out += fmt::format(
        "<p class=\"soft\" style=\"margin-top:14px\">The first {} of it, where everything but the largest values "
        "lies.</p>\n<div class=\"box\">{}</div>\n",
        bytes_in_words(static_cast<double>(usual)), memory_picture(m, usual));
  out += fmt::format(
      "<h2 id=\"launches\">Launches</h2>\n<p><input class=\"find\" data-of=\"nodes\" placeholder=\"find op, kernel, "
      "parameter\"/> <span class=\"soft\">A layer's line folds it.</span></p>\n<div class=\"box\">{}</div>\n",
      nodes);
  return out + fmt::format("</main>\n<script>{}</script>\n</body>\n</html>\n", report_script());
}

}  // namespace reprise::see
