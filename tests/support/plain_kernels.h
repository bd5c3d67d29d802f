// Kernels for the null device that compute: plain fp32 loops for the ops of a dense decoder, with keys and values in
// caches of their own and attention's lengths read on the host. They stand in for an accelerator whose vendor brings
// the operators: whatever the engine does for such a device can be checked by numbers. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/null/null_device.h"
#include "ops/core.h"
#include "ops/draw_rule.h"

namespace reprise::testing_support {

namespace plain {

template <typename T>
T* at(const LaunchArgs& a, int i) {
  return static_cast<T*>(a.ptr[static_cast<size_t>(i)]);
}

inline int64_t size(const LaunchArgs& a, int i, const LiveSizes& live) {
  return a.dim[static_cast<size_t>(i)].value(live);
}

inline void embedding(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t n = size(a, 1, live);
  for (int64_t t = 0; t < size(a, 0, live); ++t)
    std::copy_n(at<float>(a, 0) + at<int32_t>(a, 1)[t] * n, n, at<float>(a, 2) + t * n);
}

inline void linear(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t k = size(a, 1, live), n = size(a, 2, live);
  for (int64_t t = 0; t < size(a, 0, live); ++t)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += at<float>(a, 0)[t * k + i] * at<float>(a, 1)[j * k + i];
      at<float>(a, 3)[t * n + j] = sum + (at<float>(a, 2) ? at<float>(a, 2)[j] : 0);
    }
}

inline void rms_norm(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t n = size(a, 2, live);
  for (int64_t r = 0; r < size(a, 0, live) * size(a, 1, live); ++r) {
    const float* x = at<float>(a, 0) + r * n;
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(n) + static_cast<float>(a.scalar[0]));
    for (int64_t i = 0; i < n; ++i)
      at<float>(a, 3)[r * n + i] = x[i] * scale * at<float>(a, 1)[i] + (at<float>(a, 2) ? at<float>(a, 2)[i] : 0);
  }
}

// The frequencies stand behind operand and result.
inline void rope_table(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t half = size(a, 1, live) / 2;
  for (int64_t t = 0; t < size(a, 0, live); ++t)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = at<int32_t>(a, 0)[t] * at<double>(a, 2)[i];
      at<float>(a, 1)[t * 2 * half + i] = static_cast<float>(std::cos(angle) * a.scalar[0]);
      at<float>(a, 1)[t * 2 * half + half + i] = static_cast<float>(std::sin(angle) * a.scalar[0]);
    }
}

inline void rope(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t heads = size(a, 1, live), d = size(a, 2, live), half = size(a, 3, live) / 2;
  for (int64_t t = 0; t < size(a, 0, live); ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const float* x = at<float>(a, 0) + (t * heads + h) * d;
      const float* table = at<float>(a, 1) + t * 2 * half;
      float* y = at<float>(a, 2) + (t * heads + h) * d;
      for (int64_t i = 0; i < half; ++i) {
        y[i] = x[i] * table[i] - x[i + half] * table[half + i];
        y[i + half] = x[i + half] * table[i] + x[i] * table[half + i];
      }
      std::copy(x + 2 * half, x + d, y + 2 * half);
    }
}

template <typename Function>
void elementwise(const LaunchArgs& a, const LiveSizes& live, int result, Function f) {
  const int64_t n = size(a, 0, live) * size(a, 1, live);
  for (int64_t i = 0; i < n; ++i) at<float>(a, result)[i] = f(i);
}
inline void add(const LaunchArgs& a, const LiveSizes& live) {
  elementwise(a, live, 2, [&](int64_t i) { return at<float>(a, 0)[i] + at<float>(a, 1)[i]; });
}
inline void mul(const LaunchArgs& a, const LiveSizes& live) {
  elementwise(a, live, 2, [&](int64_t i) { return at<float>(a, 0)[i] * at<float>(a, 1)[i]; });
}
inline void silu(const LaunchArgs& a, const LiveSizes& live) {
  elementwise(a, live, 1, [&](int64_t i) { return at<float>(a, 0)[i] / (1 + std::exp(-at<float>(a, 0)[i])); });
}

inline void rows(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t n = size(a, 1, live);
  for (int64_t r = 0; r < size(a, 0, live); ++r)
    std::copy_n(at<float>(a, 0) + at<int32_t>(a, 1)[r] * n, n, at<float>(a, 2) + r * n);
}

inline void slice(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t from = size(a, 1, live), n = size(a, 2, live), begin = size(a, 3, live);
  for (int64_t r = 0; r < size(a, 0, live); ++r)
    std::copy_n(at<float>(a, 0) + r * from + begin, n, at<float>(a, 1) + r * n);
}

inline void argmax(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t n = size(a, 1, live);
  for (int64_t r = 0; r < size(a, 0, live); ++r) {
    const float* x = at<float>(a, 0) + r * n;
    at<int32_t>(a, 1)[r] = static_cast<int32_t>(std::max_element(x, x + n) - x);
  }
}

// Every slot must exist: the process ends here on a negative one.
inline void row_write(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t n = size(a, 1, live);
  for (int64_t t = 0; t < size(a, 0, live); ++t) {
    const int32_t slot = at<int32_t>(a, 2)[t];
    CHECK(slot >= 0, "row_write: slot {} of row {}", slot, t);
    std::copy_n(at<float>(a, 1) + t * n, n, at<float>(a, 0) + slot * n);
  }
}

// dim: T, H, D, R, columns, width of the caches, window; host: lengths, first rows.
inline void paged_attention_rows(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t h = size(a, 1, live), d = size(a, 2, live), columns = size(a, 4, live), width = size(a, 5, live);
  const int64_t window = size(a, 6, live), group = h / (width / d);
  const auto *lens = static_cast<const int32_t*>(a.host[0]), *starts = static_cast<const int32_t*>(a.host[1]);
  std::vector<float> score;
  for (int64_t r = 0; r < size(a, 3, live); ++r)
    for (int64_t t = starts[r]; t < starts[r + 1]; ++t) {
      const int64_t last = lens[r] - (starts[r + 1] - t),
                    first = window > 0 ? std::max<int64_t>(0, last - window + 1) : 0;
      const auto row = [&](int64_t key) {
        return (at<int32_t>(a, 3)[r * columns + key / kPageTokens] * kPageTokens + key % kPageTokens) * width;
      };
      for (int64_t head = 0; head < h; ++head) {
        const float* q = at<float>(a, 0) + (t * h + head) * d;
        float* y = at<float>(a, 6) + (t * h + head) * d;
        const int64_t column = head / group * d;
        float best = -std::numeric_limits<float>::infinity(), total = 0;
        score.clear();
        for (int64_t key = first; key <= last; ++key) {
          float s = 0;
          for (int64_t i = 0; i < d; ++i) s += q[i] * at<float>(a, 1)[row(key) + column + i];
          score.push_back(s * static_cast<float>(a.scalar[0]));
          best = std::max(best, score.back());
        }
        std::fill_n(y, d, 0.0f);
        for (float& s : score) total += s = std::exp(s - best);
        for (int64_t key = first; key <= last; ++key)
          for (int64_t i = 0; i < d; ++i)
            y[i] += score[static_cast<size_t>(key - first)] / total * at<float>(a, 2)[row(key) + column + i];
      }
    }
}

inline void sample(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t n = size(a, 1, live), most = kMostTopTokens;
  std::vector<draw::Candidate> scratch(static_cast<size_t>(n));
  for (int64_t r = 0; r < size(a, 0, live); ++r) {
    Draw d;
    std::memcpy(&d, at<int32_t>(a, 1) + r * kDrawWords, sizeof d);
    const float* row = at<float>(a, 0) + r * n;
    const int32_t token = at<int32_t>(a, 2)[r] = draw::token(row, n, d, scratch.data());
    std::fill_n(at<int32_t>(a, 4) + r * most, most, -1);
    if (d.logprobs < 0 || token < 0) continue;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i]));
    const auto logprob = [&](int64_t i) { return static_cast<float>(row[i] - std::log(sum)); };
    std::vector<int32_t> ids(static_cast<size_t>(n));
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t x, int32_t y) { return row[x] > row[y]; });
    at<float>(a, 3)[r] = logprob(token);
    for (int64_t i = 0; i < std::min<int64_t>(d.logprobs, most); ++i) {
      at<int32_t>(a, 4)[r * most + i] = ids[static_cast<size_t>(i)];
      at<float>(a, 5)[r * most + i] = logprob(ids[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace plain

inline void register_plain_kernels(KernelRegistry& kernels) {
  using Bind = void (*)(const OpCall&, LaunchArgs&);
  const auto put = [&](const char* op, null::NullKernel kernel, Bind bind, std::vector<int> host = {}) {
    KernelEntry e;
    e.name = fmt::format("plain.{}", op);
    e.op = op;
    e.device = DeviceKind::Null;
    e.accepts = [](const OpCall& c) {
      for (const auto& types : {c.in, c.out})
        for (const TensorType& t : types)
          if (is_float(t.dtype) && t.dtype != DType::F32) return error(Code::Unsupported, "floats other than f32");
      return Status::ok();
    };
    e.bind = bind;
    e.phase[0] = null::opaque(kernel);
    e.host_operands = std::move(host);
    kernels.add(std::move(e));
  };
  const Bind result = [](const OpCall& c, LaunchArgs& a) {
    for (int i = 0; i < c.out[0].shape.rank(); ++i) a.dim[static_cast<size_t>(i)] = c.out[0].shape[i];
  };
  const Bind flat = [](const OpCall& c, LaunchArgs& a) {
    const Shape& s = c.out[0].shape;
    a.dim[0] = s[0];
    a.dim[1] = Dim(s.rank() == 3 ? s[1].factor * s[2].factor : s[1].factor);
  };
  put("embedding", plain::embedding, result);
  put("linear", plain::linear, [](const OpCall& c, LaunchArgs& a) {
    a.dim[0] = c.in[0].shape[0];
    a.dim[1] = c.in[0].shape[1];
    a.dim[2] = c.in[1].shape[0];
  });
  put("rms_norm", plain::rms_norm, [](const OpCall& c, LaunchArgs& a) {
    const Shape& s = c.in[0].shape;
    a.dim[0] = s[0];
    a.dim[1] = s.rank() == 3 ? s[1] : Dim(1);
    a.dim[2] = s.back();
    a.scalar[0] = c.attrs->number("eps");
  });
  put("rope_table", plain::rope_table, [](const OpCall& c, LaunchArgs& a) {
    a.dim[0] = c.out[0].shape[0];
    a.dim[1] = c.out[0].shape[1];
    a.scalar[0] = c.attrs->number("scale");
    a.ptr[2] = const_cast<double*>(c.attrs->numbers("inv_freq").data());
  });
  put("rope", plain::rope, [](const OpCall& c, LaunchArgs& a) {
    for (int i = 0; i < 3; ++i) a.dim[static_cast<size_t>(i)] = c.in[0].shape[i];
    a.dim[3] = c.in[1].shape[1];
  });
  put("add", plain::add, flat);
  put("mul", plain::mul, flat);
  put("silu", plain::silu, flat);
  put("rows", plain::rows, result);
  put("slice", plain::slice, [](const OpCall& c, LaunchArgs& a) {
    const Shape& s = c.in[0].shape;
    a.dim[0] = s.rank() == 3 ? Dim(s[0].factor * s[1].factor, s[0].symbol) : s[0];
    a.dim[1] = s.back();
    a.dim[2] = c.out[0].shape.back();
    a.dim[3] = Dim(c.attrs->integer("begin"));
  });
  put("argmax", plain::argmax, [](const OpCall& c, LaunchArgs& a) {
    a.dim[0] = c.in[0].shape[0];
    a.dim[1] = c.in[0].shape[1];
  });
  put("sample", plain::sample, [](const OpCall& c, LaunchArgs& a) {
    a.dim[0] = c.in[0].shape[0];
    a.dim[1] = c.in[0].shape[1];
  });
  put("row_write", plain::row_write, [](const OpCall& c, LaunchArgs& a) {
    a.dim[0] = c.in[1].shape[0];
    a.dim[1] = c.in[1].shape[1];
  });
  put("paged_attention_rows", plain::paged_attention_rows,
      [](const OpCall& c, LaunchArgs& a) {
        for (int i = 0; i < 3; ++i) a.dim[static_cast<size_t>(i)] = c.in[0].shape[i];
        a.dim[3] = c.in[3].shape[0];
        a.dim[4] = c.in[3].shape[1];
        a.dim[5] = c.in[1].shape[2];
        a.dim[6] = Dim(c.attrs->integer("window"));
        a.scalar[0] = c.attrs->number("scale");
      },
      {4, 5});
}

}  // namespace reprise::testing_support
