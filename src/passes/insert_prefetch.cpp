// Which weights are read ahead, and when. Between two products of large weights stand launches that leave device memory
// idle: norms, rotations, attention over short contexts, choosing experts, exchanges between ranks. What a device says
// of itself (DeviceInfo::read_ahead) tells how long such a window is, at least: at one row, with nothing in the caches.
// Prefetches start behind the product before the window, on a stream of their own, and ask for as much of the weights
// that come next as the window has time for. No launch waits for them: where one is late, the product reads memory, as
// without.
//
// A prefetch takes bandwidth from what runs beside it. The share that a launch uses by itself grows with the rows of a
// step and their contexts, and delays it by that share of the time that the prefetch takes. So each window says up to
// how many rows it hides more than it costs, at contexts of an assumed length; larger captures leave it out.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/kv_page.h"
#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr int64_t kLine = 512;       // bytes; prefetches are whole lines
constexpr int64_t kMostRows = 4096;  // what pays at so many pays at any number

int64_t bytes_of(const Value& param) {
  const auto dims = param.type.shape.dims();
  if (!std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_constant(); })) return 0;
  return param.type.shape.elements(LiveSizes{}) * static_cast<int64_t>(size_of(param.type.dtype));
}

std::string megabytes(int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

// A product by large weights, and what stands between the one before and it.
struct Window {
  Node* product = nullptr;
  Value* weight = nullptr;
  Node* begin = nullptr;  // the product before; null: the graph begins
  double idle_us = 0;     // of memory, at one row with nothing in the caches
  std::vector<const Node*> launches;

  std::string ops() const {
    std::vector<std::string_view> names;
    for (const Node* n : launches) names.push_back(n->op->name);
    return fmt::format("{}", fmt::join(names, " "));
  }
};

// What a step of so many rows asks of memory beside the products.
struct Step {
  int64_t rows, keys;

  double bytes(const Node& n) const {
    LiveSizes live;
    live.value.fill(rows);
    live.value[0] = 1;
    double all = 0;
    for (size_t i = 0; i < n.in.size(); ++i) {
      const OperandSchema& o = n.op->operands[i];
      const TensorType& type = n.in[i]->type;
      if (o.is_index() || o.mutated) continue;
      double elements = static_cast<double>(type.shape.elements(live));
      if (o.role == OperandRole::Table) {
        elements *= static_cast<double>(rows) / static_cast<double>(std::max<int64_t>(type.shape[0].value(live), 1));
      } else if (o.role == OperandRole::Cache) {
        LiveSizes page;
        page.value.fill(1);
        elements = static_cast<double>(type.shape.elements(page) * rows * keys) / kPageTokens;
      }
      all += elements * static_cast<double>(size_of(type.dtype));
    }
    return all;
  }
};

class PrefetchInserter {
 public:
  PrefetchInserter(Graph& g, PassContext& c, const OpSchema& op, int64_t most, int64_t keys)
      : g_(g), c_(c), op_(op), info_(c.device()->read_ahead), most_(most), keys_(keys) {}

  Status run() {
    std::vector<Node*> launches;
    for (Node* n = g_.first(); n; n = n->next)
      if (n->is_launched()) launches.push_back(n);
    if (launches.empty()) return Status::ok();
    if (!info_.refusal.empty()) {
      c_.refuse(*launches.front(), info_.refusal);
      return Status::ok();
    }
    find_windows(launches, busy_launches(launches));
    for (size_t i = 0; i < windows_.size(); ++i) RETURN_IF_ERROR(fill(i));
    return Status::ok();
  }

 private:
  // What memory reads while a mark is set comes with the launch's own start, and does not end a window either.
  int64_t least_bytes() const { return std::max(kLine, static_cast<int64_t>(info_.mark_us * info_.bytes_per_us)); }

  // The first large parameter that the launch multiplies by.
  Value* large_weight(const Node& n) const {
    for (size_t i = 0; i < n.in.size(); ++i)
      if (n.op->operands[i].role == OperandRole::Weight && n.in[i]->def->is_param() &&
          bytes_of(*n.in[i]) >= least_bytes())
        return n.in[i];
    return nullptr;
  }

  // By the kernels that it starts. Of a collective one is the exchange. Attention starts matrix and vector cores, and
  // is counted once more.
  double idle_us(const Node& n) const {
    const double all = c_.kernels_started(n) * info_.launch_us;
    if (n.op->has(op_trait::kCollective)) return all + std::max(info_.collective_us - info_.launch_us, 0.0);
    for (const OperandSchema& o : n.op->operands)
      if (o.role == OperandRole::Cache && !o.mutated) return all + info_.launch_us;
    return all;
  }

  // Launches of the main stream beside which another stream multiplies by large weights: memory does not idle there.
  std::unordered_set<const Node*> busy_launches(const std::vector<Node*>& launches) const {
    std::unordered_set<const Node*> busy;
    std::unordered_map<const Node*, size_t> place;
    for (size_t i = 0; i < launches.size(); ++i) place[launches[i]] = i;
    for (size_t i = 0; i < launches.size(); ++i) {
      const Node& side = *launches[i];
      if (side.stream == kMainStream || !large_weight(side)) continue;
      size_t from = 0, until = launches.size();
      for (size_t k = i + 1; k-- > 0 && from == 0;)
        if (launches[k]->stream == side.stream)
          for (const Node* w : launches[k]->waits) from = std::max(from, place.at(w) + 1);
      for (size_t k = i + 1; k < until; ++k)
        for (const Node* w : launches[k]->waits)
          if (w->stream == side.stream && place.at(w) >= i) until = k;
      for (size_t k = from; k < until; ++k) busy.insert(launches[k]);
    }
    return busy;
  }

  void find_windows(const std::vector<Node*>& launches, const std::unordered_set<const Node*>& busy) {
    Window w;
    for (Node* n : launches) {
      if (n->stream != kMainStream) continue;
      w.weight = large_weight(*n);
      if (w.weight) {
        w.product = n;
        windows_.push_back(std::move(w));
        w = {};
        w.begin = n;
      } else if (!busy.contains(n)) {
        w.idle_us += idle_us(*n);
        w.launches.push_back(n);
      }
    }
  }

  // Why nothing of the product's weights may be read ahead; empty where it may.
  std::string refusal(const Window& w) const {
    if (w.product->op->has(OperandRole::Starts) || w.product->op->has(op_trait::kRoutes))
      return "which of its matrices are read depends on the step";
    const DType type = w.weight->type.dtype;
    if (!is_float(type) && type != DType::I8)
      return fmt::format("its weights are packed ({}); allowed: floats and i8", dtype_name(type));
    Attrs attrs;
    attrs.set("first", int64_t{0});
    attrs.set("bytes", kLine);
    const TensorType in[] = {w.weight->type};
    const Status kernel = c_.has_kernel(op_, in, attrs);
    return kernel.is_ok() ? "" : kernel.message();
  }

  // How long a prefetch of so many bytes delays the window's launches, in a step of so many rows.
  double delays_us(const Window& w, int64_t bytes, int64_t rows) const {
    double left = static_cast<double>(bytes) / info_.bytes_per_us, cost = 0, at = 0;
    for (const Node* n : w.launches) {
      const double reads = Step{rows, keys_}.bytes(*n) / info_.bytes_per_us;
      const double takes = idle_us(*n) + reads, end = at + takes;
      const double beside = std::clamp(end - std::max(at, info_.delay_us), 0.0, left);
      if (takes > 0) cost += beside * reads / takes;
      left -= beside;
      at = end;
    }
    return cost;
  }

  // The most rows of a step in which what is saved is more than what it costs; 0: not even one.
  int64_t most_rows(const Window& w, int64_t bytes, double saved) const {
    const auto pays = [&](int64_t rows) { return saved > info_.mark_us + delays_us(w, bytes, rows); };
    if (!pays(1)) return 0;
    int64_t known = 1, until = kMostRows;
    while (known < until) {
      const int64_t rows = (known + until + 1) / 2;
      if (pays(rows))
        known = rows;
      else
        until = rows - 1;
    }
    return known;
  }

  // As much of the next products' weights as the window has time for.
  Status fill(size_t index) {
    const Window& w = windows_[index];
    c_.count_tried();
    if (std::string why = refusal(w); !why.empty()) {
      c_.refuse(*w.product, std::move(why));
      return Status::ok();
    }
    const double idle = w.idle_us - info_.delay_us;
    if (idle <= 0) {
      c_.refuse(*w.product, fmt::format("memory idles for {:.1f} us before it, and a prefetch begins after {:.1f} us",
                                        w.idle_us, info_.delay_us));
      return Status::ok();
    }
    // Half of the cache is for what runs meanwhile.
    int64_t room =
        std::min(static_cast<int64_t>(idle * info_.bytes_per_us), static_cast<int64_t>(info_.cache_bytes / 2));
    struct Part {
      Value* weight;
      int64_t first, bytes;
    };
    std::vector<Part> parts;
    int64_t all = 0;
    for (size_t i = index; i < windows_.size() && (i == index || refusal(windows_[i]).empty()); ++i) {
      Value* weight = windows_[i].weight;
      const auto known = ahead_.find(weight);
      const int64_t first = known == ahead_.end() ? 0 : known->second;
      const int64_t bytes = std::min({bytes_of(*weight) - first, most_ - first, room}) / kLine * kLine;
      if (bytes < least_bytes()) {
        if (room < least_bytes()) break;
        continue;
      }
      parts.push_back({weight, first, bytes});
      room -= bytes;
      all += bytes;
    }
    const double cached = std::max(info_.cached_bytes_per_us, info_.bytes_per_us);
    const double saved = static_cast<double>(all) * (1 / info_.bytes_per_us - 1 / cached);
    if (saved <= info_.mark_us) {
      c_.refuse(*w.product, fmt::format("{} ahead would save {:.1f} us, and to start them costs {:.1f} us",
                                        megabytes(all), saved, info_.mark_us));
      return Status::ok();
    }
    const int64_t rows = most_rows(w, all, saved);
    if (rows == 0) {
      c_.refuse(
          *w.product,
          fmt::format("{} ahead would save {:.1f} us, and to start them costs {:.1f} us and what runs beside them "
                      "{:.1f} us of its bandwidth, at one row of {} keys",
                      megabytes(all), saved, info_.mark_us, delays_us(w, all, 1), keys_));
      return Status::ok();
    }
    if (!c_.may_apply(*w.product)) return Status::ok();
    const bool any = rows == kMostRows;
    c_.applied(*w.product, fmt::format("{} beside {}{}", megabytes(all), w.ops(),
                                       any ? "" : fmt::format(", in steps of up to {} rows", rows)));
    for (const Part& p : parts) {
      RETURN_IF_ERROR(put(p.weight, p.first, p.bytes, any ? 0 : rows, w, &p == &parts.front()));
      ahead_[p.weight] = p.first + p.bytes;
    }
    return Status::ok();
  }

  // In front of the window; the first of several waits for its beginning, the others stand behind it.
  Status put(Value* weight, int64_t first, int64_t bytes, int64_t rows, const Window& w, bool waits) {
    Node* before = w.begin ? w.begin->next : g_.first();
    while (before->is_hint() || before->is_source()) before = before->next;
    for (const Node* n = before; n; n = n->next)
      if (n == weight->def) {  // it is defined too late
        g_.move_before(weight->def, before);
        break;
      }
    Attrs attrs;
    attrs.set("first", first);
    attrs.set("bytes", bytes);
    attrs.set("rows", rows);
    ASSIGN_OR_RETURN(Node * hint, g_.add(op_, {weight}, std::move(attrs), "insert_prefetch", before));
    hint->stream = kPrefetchStream;
    if (waits && w.begin) hint->waits.push_back(w.begin);
    return Status::ok();
  }

  Graph& g_;
  PassContext& c_;
  const OpSchema& op_;
  const ReadAhead info_;
  const int64_t most_, keys_;
  std::vector<Window> windows_;
  std::unordered_map<const Value*, int64_t> ahead_;  // bytes that are asked for already: once in a step is enough
};

}  // namespace

Pass insert_prefetch(int64_t most_bytes, int64_t keys) {
  return {"insert_prefetch", false, [most_bytes, keys](Graph& g, PassContext& c) {
            const OpSchema* op = c.ops().find("prefetch");
            if (!op) return error(Code::Internal, "the registry has no prefetch");
            return c.device() ? PrefetchInserter(g, c, *op, most_bytes, keys).run() : Status::ok();
          }};
}

}  // namespace reprise
