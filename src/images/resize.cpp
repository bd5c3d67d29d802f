// Pillow's resampling (libImaging/Resample.c) for 8 bits a channel: weights of 22 bits, one pass along rows and one
// along columns with 8 bits between them.
#include <algorithm>
#include <cmath>

#include "images/patches.h"

namespace reprise::images {
namespace {

constexpr int kBits = 32 - 8 - 2;

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

// What each place of the result reads: the first place, and the weights of that one and of those behind it.
struct Taps {
  std::vector<int64_t> first, count;
  std::vector<int32_t> weights;  // `most` of each
  int64_t most = 0;
};

Taps taps_for(int64_t from, int64_t to) {
  Taps t;
  const double scale = static_cast<double>(from) / static_cast<double>(to), widened = std::max(scale, 1.0);
  const double support = 2.0 * widened;
  t.most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  t.first.resize(static_cast<size_t>(to));
  t.count.resize(static_cast<size_t>(to));
  t.weights.resize(static_cast<size_t>(to * t.most));
  std::vector<double> w(static_cast<size_t>(t.most));
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
    const int64_t count = std::min(from, static_cast<int64_t>(centre + support + 0.5)) - first;
    double sum = 0;
    for (int64_t x = 0; x < count; ++x)
      sum += w[static_cast<size_t>(x)] = bicubic((static_cast<double>(x + first) - centre + 0.5) * (1.0 / widened));
    for (int64_t x = 0; x < count; ++x) {
      const double part = sum != 0.0 ? w[static_cast<size_t>(x)] / sum : w[static_cast<size_t>(x)];
      t.weights[static_cast<size_t>(i * t.most + x)] =
          static_cast<int32_t>((part < 0 ? -0.5 : 0.5) + part * (1 << kBits));
    }
    t.first[static_cast<size_t>(i)] = first;
    t.count[static_cast<size_t>(i)] = count;
  }
  return t;
}

uint8_t clipped(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

// The sum of three channels over `count` pixels that are `step` bytes apart.
void weigh(const uint8_t* from, int64_t step, const int32_t* weights, int64_t count, uint8_t* to) {
  int32_t sum[3] = {1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1)};
  for (int64_t i = 0; i < count; ++i)
    for (int c = 0; c < 3; ++c) sum[c] += from[i * step + c] * weights[i];
  for (int c = 0; c < 3; ++c) to[c] = clipped(sum[c]);
}

Pixels along_rows(const Pixels& in, int64_t width) {
  const Taps t = taps_for(in.width, width);
  Pixels out{width, in.height, std::vector<uint8_t>(static_cast<size_t>(width * in.height * 3))};
  for (int64_t y = 0; y < in.height; ++y)
    for (int64_t x = 0; x < width; ++x)
      weigh(in.rgb.data() + (y * in.width + t.first[static_cast<size_t>(x)]) * 3, 3,
            &t.weights[static_cast<size_t>(x * t.most)], t.count[static_cast<size_t>(x)],
            &out.rgb[static_cast<size_t>((y * width + x) * 3)]);
  return out;
}

Pixels along_columns(const Pixels& in, int64_t height) {
  const Taps t = taps_for(in.height, height);
  const int64_t row = in.width * 3;
  Pixels out{in.width, height, std::vector<uint8_t>(static_cast<size_t>(row * height))};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < in.width; ++x)
      weigh(in.rgb.data() + t.first[static_cast<size_t>(y)] * row + x * 3, row,
            &t.weights[static_cast<size_t>(y * t.most)], t.count[static_cast<size_t>(y)],
            &out.rgb[static_cast<size_t>(y * row + x * 3)]);
  return out;
}

}  // namespace

Pixels resize_bicubic(const Pixels& image, ImageSize size) {
  if (image.width == size.width && image.height == size.height) return image;
  if (image.width == size.width) return along_columns(image, size.height);
  if (image.height == size.height) return along_rows(image, size.width);
  return along_columns(along_rows(image, size.width), size.height);
}

}  // namespace reprise::images
