#include "see/product_report.h"

#include <algorithm>

namespace reprise::see {
namespace {

using Outcome = ProductWay::Outcome;

constexpr int64_t kAnyRows = int64_t{1} << 40;

std::string reason_of(const ProductWay& w) {
  switch (w.outcome) {
    case Outcome::Library:
      return w.us > 0 ? "the fastest that gives the same bits" : "the library's favourite that gives the same bits";
    case Outcome::OwnFaster: return "the own kernel is as fast";
    case Outcome::OtherBits: return fmt::format("none of {} algorithms gives the same bits", w.proposed);
    case Outcome::NoProposal: break;
  }
  return "the library has no algorithm that splits no sum and needs no workspace";
}

// Rows that are never given to the library; nothing where it is always asked.
std::optional<ProductRow> ruled_out(const ProductWays& ways, const LibraryProduct& p) {
  ProductRow row;
  row.asked = false;
  if (const std::string_view why = ways.own_because(p, kAnyRows); !why.empty()) {
    row.rows = {1, ProductRow::kNoEnd};
    row.reason = why;
    return row;
  }
  int64_t first = 1;  // that the library is asked for
  while (!ways.own_because(p, first).empty()) ++first;
  if (first == 1) return std::nullopt;
  row.rows = {1, first - 1};
  row.reason = ways.own_because(p, first - 1);
  return row;
}

std::vector<ProductRow> rows_of(const ProductWays& ways, const LibraryProduct& p) {
  std::vector<ProductRow> out;
  const auto ruled = ruled_out(ways, p);
  if (ruled) out.push_back(*ruled);
  const int64_t before = ruled ? ruled->rows.last : 0;
  for (const ProductWays::Found& f : ways.found()) {
    const ProductWay& w = f.way;
    if (w.in != p.in || w.out != p.out || w.depth != p.depth || w.columns != p.columns || w.rows.last <= before)
      continue;
    out.push_back({{std::max(w.rows.first, before + 1), w.rows.last},
                   w.outcome == Outcome::Library,
                   f.algorithm,
                   f.from_file,
                   true,
                   reason_of(w),
                   w.us,
                   w.own_us});
  }
  std::sort(out.begin(), out.end(),
            [](const ProductRow& a, const ProductRow& b) { return a.rows.first < b.rows.first; });
  return out;
}

std::string weight_of(const Node& n) {
  const size_t weight = n.op->first(OperandRole::Weight);
  const Node* def = weight < n.in.size() ? n.in[weight]->def : nullptr;
  return def && def->is_param() ? def->attrs.text("name") : "";
}

// What the node multiplies; nothing where it has no weight.
std::optional<LibraryProduct> product_of(const Node& n, const KernelEntry& kernel) {
  const auto in = n.in_types(), out = n.out_types();
  if (kernel.library) return kernel.library({n.op, in, out, &n.attrs, {}});
  const size_t weight = n.op->first(OperandRole::Weight);
  if (weight >= in.size()) return std::nullopt;
  const Shape& shape = in[weight].shape;
  return LibraryProduct{in[0].dtype, out[0].dtype, in[0].shape.back().factor, shape[shape.rank() - 2].factor,
                        "the library has nothing like this op"};
}

std::string row_text(const ProductRow& r, const std::string& library) {
  std::string out = r.by_library ? fmt::format("{}, {}", library, r.algorithm) : "own kernel";
  out += r.asked ? fmt::format(" ({}): {}", r.from_file ? "from the file" : "searched", r.reason)
                 : fmt::format(": {}", r.reason);
  if (r.us > 0) out += fmt::format(", {:.1f} us", r.us);
  if (r.own_us > 0) out += fmt::format(", own kernel {:.1f} us", r.own_us);
  return out;
}

}  // namespace

std::optional<ProductReport> product_report(const CompiledModel& model) {
  const ProductWays* ways = model.device().product_ways();
  if (!ways) return std::nullopt;
  ProductReport report{ways->library(), {}};
  for (const Piece& piece : model.pieces())
    for (const Thunk& t : piece.thunks) {
      const KernelEntry* kernel = model.kernel(t.node);
      const Node& n = *model.node(t.node);
      const auto product = kernel ? product_of(n, *kernel) : std::nullopt;
      if (!product) continue;
      const LibraryProduct& p = *product;
      const auto known = std::find_if(report.groups.begin(), report.groups.end(), [&](const ProductGroup& g) {
        return g.op == n.op->name && g.in == p.in && g.out == p.out && g.depth == p.depth && g.columns == p.columns;
      });
      if (known != report.groups.end())
        ++known->count;
      else
        report.groups.push_back({n.op->name, weight_of(n), p.in, p.out, p.depth, p.columns, 1, rows_of(*ways, p)});
    }
  return report;
}

OrderedJson product_json(const ProductReport& report) {
  OrderedJson j = {{"library", report.library}, {"groups", OrderedJson::array()}};
  for (const ProductGroup& g : report.groups) {
    OrderedJson rows = OrderedJson::array();
    for (const ProductRow& r : g.rows) {
      OrderedJson row = {{"from", r.rows.first},
                         {"to", r.rows.last == ProductRow::kNoEnd ? OrderedJson(nullptr) : OrderedJson(r.rows.last)},
                         {"by", r.by_library ? "library" : "own kernel"},
                         {"reason", r.reason}};
      if (r.asked) row["origin"] = r.from_file ? "file" : "searched";
      if (r.by_library) row["algorithm"] = r.algorithm;
      if (r.us > 0) row["us"] = r.us;
      if (r.own_us > 0) row["own_us"] = r.own_us;
      rows.push_back(std::move(row));
    }
    j["groups"].push_back({{"op", g.op},
                           {"param", g.param},
                           {"in", dtype_name(g.in)},
                           {"out", dtype_name(g.out)},
                           {"columns", g.columns},
                           {"depth", g.depth},
                           {"count", g.count},
                           {"rows", rows}});
  }
  return j;
}

std::string product_text(const ProductReport& report) {
  std::string out = fmt::format("{:<42}{:>8}  weight of the first one\n", "product", "calls");
  for (const ProductGroup& g : report.groups) {
    out += fmt::format("{:<42}{:>8}  {}\n", fmt::format("{} {} {} x {}", g.op, dtype_name(g.in), g.columns, g.depth),
                       g.count, g.param);
    for (const ProductRow& r : g.rows) {
      const std::string rows = r.rows.last == ProductRow::kNoEnd
                                   ? fmt::format("{} rows and more", r.rows.first)
                                   : fmt::format("{} to {} rows", r.rows.first, r.rows.last);
      out += fmt::format("    {:<24}{}\n", rows, row_text(r, report.library));
    }
  }
  return out;
}

}  // namespace reprise::see
