#include "ascend/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ascend/ops/check.h"

namespace ascend_sim {

int64_t Attention::limit(const Request& request, int64_t row) const {
  const int64_t all = request.kv_length;
  if (masks != MaskKind::Shared) return all;
  const int64_t shift = sparse == 2 ? 0 : request.kv_length - request.length;
  const int64_t last = row + shift + (sparse == 4 ? std::min<int64_t>(after, all) : 0);
  return std::clamp<int64_t>(last + 1, 0, all);
}

int64_t Attention::begin(const Request& request, int64_t row) const {
  if (masks != MaskKind::Shared || sparse != 4) return 0;
  const int64_t all = request.kv_length;
  return std::clamp<int64_t>(row + all - request.length - std::min<int64_t>(before, 2 * all), 0, all);
}

namespace {

// Which row of [rows][width] holds a token's head.
int64_t row_of(const Attention& a, Layout layout, int64_t batch, int64_t first, int64_t token, int64_t head) {
  switch (layout) {
    case Layout::Bsnd: return (batch * a.rows + token) * a.heads + head;
    case Layout::Bnsd: return (batch * a.heads + head) * a.rows + token;
    case Layout::Tnd: return (first + token) * a.heads + head;
    case Layout::Ntd: break;
  }
  return head * a.tokens + first + token;
}

// Reads keys or values of one head of one request, position after position.
class Source {
 public:
  Source(const Attention& a, const Operands& v, const std::vector<Slot>& slots, const std::vector<int64_t>& table,
         int64_t width)
      : a_(a), width_(width), table_(table), table_width_(v[a.table].given ? v[a.table].dim(1) : 0) {
    for (const Slot slot : slots) {
      dtype_ = v[slot].dtype;
      bases_.push_back(v[slot].count() ? at<const char>(v[slot]) : nullptr);
      sizes_.push_back(v[slot].dim(a.in == Layout::Bnsd ? 2 : 1));
      blocks_ = v[slot].dim(0);
    }
  }

  void read(size_t batch, int64_t head, int64_t position, float* to) const {
    const Request& request = a_.requests[batch];
    const bool list = bases_.size() > 1;
    const auto sequence = static_cast<int64_t>(list ? 0 : batch);
    const char* base = bases_[list ? batch : 0];
    const int64_t heads = a_.kv_heads, element = size_of(dtype_);
    if (a_.pages == Pages::None) {
      const int64_t size = sizes_[list ? batch : 0];
      int64_t row = 0;
      switch (a_.in) {
        case Layout::Bsnd: row = (sequence * size + position) * heads + head; break;
        case Layout::Bnsd: row = (sequence * heads + head) * size + position; break;
        case Layout::Tnd: row = (request.kv_first + position) * heads + head; break;
        case Layout::Ntd: row = head * a_.kv_tokens + request.kv_first + position; break;
      }
      return read_run(dtype_, base + row * width_ * element, 1, width_, to);
    }
    const int64_t page = page_of(batch, position), within = position % a_.page;
    if (a_.pages == Pages::Fractal) {
      for (int64_t i = 0; i < width_; i += 16) {
        const int64_t place = (((page * heads + head) * (width_ / 16) + i / 16) * a_.page + within) * 16;
        read_run(dtype_, base + place * element, 1, 16, to + i);
      }
      return;
    }
    const int64_t row =
        a_.pages == Pages::Rows ? (page * a_.page + within) * heads + head : (page * heads + head) * a_.page + within;
    read_run(dtype_, base + row * width_ * element, 1, width_, to);
  }

 private:
  // Only pages within the length are looked at; ids are trusted by the real kernel, and a wrong one faults there too.
  int64_t page_of(size_t batch, int64_t position) const {
    const int64_t page = table_[batch * static_cast<size_t>(table_width_) + static_cast<size_t>(position / a_.page)];
    if (page < 0 || page >= blocks_) {
      throw DeviceFault("attention: page " + std::to_string(page) + " of request " + std::to_string(batch) +
                        " is none of the " + std::to_string(blocks_) + " of its pool");
    }
    return page;
  }

  const Attention& a_;
  int64_t width_;
  const std::vector<int64_t>& table_;
  int64_t table_width_;
  aclDataType dtype_ = kBf16;
  std::vector<const char*> bases_;
  std::vector<int64_t> sizes_;
  int64_t blocks_ = 0;
};

// Whether a query row may not see a key: by the shared mask of 2048 x 2048, of which only the distance from the
// diagonal is looked up, or by an explicit one.
class Mask {
 public:
  Mask(const Attention& a, const Operands& v) : a_(a) {
    if (a.masks == MaskKind::None) return;
    const View& mask = v[a.mask];
    if (a.masks != MaskKind::Explicit) {
      above_ = read<int64_t>(line(mask, 1));
      below_ = read<int64_t>(line(mask, 2));
      return;
    }
    bits_ = read<int64_t>(mask);
    columns_ = mask.dim(-1);
    const bool by_row = a.rows > 1;
    lines_ = by_row ? mask.dim(-2) : 1;
    batches_ = mask.count() / std::max<int64_t>(1, lines_ * columns_);
  }

  bool hides(size_t batch, int64_t row, int64_t key) const {
    if (a_.masks == MaskKind::None) return false;
    const Request& request = a_.requests[batch];
    if (a_.masks == MaskKind::Explicit) {
      const int64_t plane = batches_ > 1 ? static_cast<int64_t>(batch) : 0;
      if (bits_[static_cast<size_t>((plane * lines_ + (lines_ > 1 ? row : 0)) * columns_ + key)] != 0) return true;
      return a_.sparse == 0 && a_.rows > 1 && (key - row > a_.after || row - key > a_.before);
    }
    const int64_t shift = a_.sparse == 2 ? 0 : request.kv_length - request.length, distance = key - row - shift;
    if (a_.sparse == 4) return distance > a_.after || -distance > a_.before;
    const int64_t far = std::min<int64_t>(std::abs(distance), 2047);
    return (distance >= 0 ? above_ : below_)[static_cast<size_t>(far)] != 0;
  }

 private:
  // The first elements along the last dimension, or the last but one.
  static View line(const View& mask, size_t from_end) {
    View out = mask;
    const size_t axis = mask.shape.size() - from_end;
    out.shape = {mask.shape[axis]};
    out.strides = {mask.strides[axis]};
    return out;
  }

  const Attention& a_;
  std::vector<int64_t> bits_;           // of an explicit mask
  std::vector<int64_t> above_, below_;  // of the shared one, by the distance from the diagonal
  int64_t columns_ = 0, lines_ = 1, batches_ = 1;
};

// Everything of one head of keys of one request.
struct Gathered {
  std::vector<float> keys;    // [width + rope][length]: dot products run over many keys at once
  std::vector<float> values;  // [length][value width]
};

void gather(const Attention& a, size_t batch, int64_t head, const Source& keys, const Source* ropes,
            const Source& values, Gathered& to) {
  const int64_t length = a.requests[batch].kv_length, width = a.width + a.rope_width;
  to.keys.resize(static_cast<size_t>(width * length));
  to.values.resize(static_cast<size_t>(a.value_width * length));
  std::vector<float> row(static_cast<size_t>(width));
  for (int64_t j = 0; j < length; ++j) {
    keys.read(batch, head, j, row.data());
    if (ropes) ropes->read(batch, head, j, row.data() + a.width);
    for (int64_t d = 0; d < width; ++d) to.keys[static_cast<size_t>(d * length + j)] = row[static_cast<size_t>(d)];
    values.read(batch, head, j, to.values.data() + j * a.value_width);
  }
}

// One query row of one head; answers max + log(sum of exponentials). A sink is one more score, without a value: the sum
// has its exponential, too (OT-2608 fused_block_epilogue_online_softmax_sink.inc.hpp: UpdateRowMaxWithSink and
// UpdateRowSumWithSink).
float attend(const Attention& a, size_t batch, int64_t row, const std::vector<float>& query, const Gathered& kv,
             const Mask& mask, const float* sink, std::vector<float>& scores, std::vector<float>& out) {
  const Request& request = a.requests[batch];
  const int64_t length = request.kv_length, width = a.width + a.rope_width;
  std::fill(out.begin(), out.end(), 0.0f);
  if (length == 0) return std::numeric_limits<float>::infinity();
  // Keys are taken in tiles: what lies behind the last visible one in its tile still meets the values, with weight 0,
  // and so does what lies before a band in its block of 512 (OT-2608 flash_attention_regular.h:587).
  const int64_t seen = std::min(length, (a.limit(request, row) + 127) / 128 * 128);
  const int64_t from = std::min(seen, a.begin(request, row) / 512 * 512);
  scores.assign(static_cast<size_t>(seen), 0.0f);
  for (int64_t d = 0; d < width; ++d) {
    const float factor = query[static_cast<size_t>(d)];
    const float* line = kv.keys.data() + d * length;
    for (int64_t j = from; j < seen; ++j) scores[static_cast<size_t>(j)] += factor * line[j];
  }
  float highest = -std::numeric_limits<float>::infinity();
  bool any = false;
  for (int64_t j = from; j < seen; ++j) {
    float& score = scores[static_cast<size_t>(j)];
    const bool hidden = mask.hides(batch, row, j);
    score = hidden ? -std::numeric_limits<float>::infinity() : score * static_cast<float>(a.scale);
    any |= !hidden;
    if (score > highest) highest = score;
  }
  if (!any) {  // defined only where bit 1 of innerPrecise asks for it
    if ((a.precise & 2) == 0) std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
    return std::numeric_limits<float>::infinity();
  }
  if (sink) highest = std::max(highest, *sink);
  float sum = 0;
  for (int64_t j = from; j < seen; ++j) {
    float& score = scores[static_cast<size_t>(j)];
    score = std::exp(score - highest);
    sum += score;
    const float* line = kv.values.data() + j * a.value_width;
    for (int64_t d = 0; d < a.value_width; ++d) out[static_cast<size_t>(d)] += score * line[d];
  }
  if (sink) sum += std::exp(*sink - highest);
  for (float& value : out) value /= sum;
  return highest + std::log(sum);
}

}  // namespace

void compute_attention(const Attention& a, const Operands& v) {
  const std::vector<int64_t> table = a.pages == Pages::None ? std::vector<int64_t>{} : read<int64_t>(v[a.table]);
  const Source keys(a, v, a.keys, table, a.width), values(a, v, a.values, table, a.value_width);
  const Source ropes(a, v, a.rope_width ? std::vector<Slot>{a.key_rope} : std::vector<Slot>{}, table, a.rope_width);
  const Mask mask(a, v);
  const int64_t group = a.heads / a.kv_heads;
  std::vector<float> query(static_cast<size_t>(a.width + a.rope_width)), scores;
  std::vector<float> out(static_cast<size_t>(a.value_width)), sinks(static_cast<size_t>(a.sunk ? a.heads : 0));
  if (a.sunk) read_row(v[a.sinks], 0, a.heads, sinks.data());
  Gathered kv;
  for (size_t batch = 0; batch < a.requests.size(); ++batch) {
    const Request& request = a.requests[batch];
    const auto b = static_cast<int64_t>(batch);
    for (int64_t kv_head = 0; kv_head < a.kv_heads && request.length > 0; ++kv_head) {
      gather(a, batch, kv_head, keys, a.rope_width ? &ropes : nullptr, values, kv);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t row = 0; row < request.length; ++row) {
          const int64_t from = row_of(a, a.in, b, request.first, row, head);
          read_row(v[a.query], from, a.width, query.data());
          if (a.rope_width) read_row(v[a.query_rope], from, a.rope_width, query.data() + a.width);
          const float* sink = a.sunk ? &sinks[static_cast<size_t>(head)] : nullptr;
          const float lse = attend(a, batch, row, query, kv, mask, sink, scores, out);
          write_row(v[a.out], row_of(a, a.to, b, request.first, row, head), a.value_width, out.data());
          if (!a.wants_lse) continue;
          const Layout plain = a.joined() ? Layout::Tnd : Layout::Bnsd;
          write_row(v[a.lse], row_of(a, plain, b, request.first, row, head), 1, &lse);
        }
      }
    }
  }
}

double attention_operations(const Attention& a) {
  double pairs = 0;
  for (const Request& request : a.requests) {
    // Rows see one key more each until they see all, or as many as a band has.
    for (int64_t row = 0; row < request.length; ++row)
      pairs += static_cast<double>(std::max<int64_t>(0, a.limit(request, row) - a.begin(request, row)));
  }
  return 2 * pairs * static_cast<double>(a.heads * (a.width + a.rope_width + a.value_width));
}

double attention_bytes(const Operator& op, const Attention& a) {
  double positions = 0;
  for (const Request& request : a.requests) positions += static_cast<double>(request.kv_length - a.begin(request, 0));
  const auto width = static_cast<double>(a.kv_heads * (a.width + a.rope_width + a.value_width));
  double bytes =
      op[a.query].bytes() + op[a.out].bytes() + positions * width * static_cast<double>(op[a.query].element());
  if (op.given(a.table)) bytes += op[a.table].bytes();
  if (op.given(a.query_rope)) bytes += op[a.query_rope].bytes();
  if (a.sunk) bytes += op[a.sinks].bytes();
  if (a.wants_lse) bytes += op[a.lse].bytes();
  return bytes;
}

}  // namespace ascend_sim
