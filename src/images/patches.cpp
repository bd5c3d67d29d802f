#include "images/patches.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace reprise::images {
namespace {

constexpr double kMostAspect = 200;
constexpr int64_t kMostSide = 1 << 10, kMostArea = int64_t{1} << 30;

Status wrong(std::string_view source, std::string_view key, const Json& value, std::string_view allowed) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return invalid("{}: {} is {}; allowed: {}", source, key, text, allowed);
}

const Json* found(const Json& config, std::string_view key) {
  const auto it = config.find(key);
  return it == config.end() || it->is_null() ? nullptr : &*it;
}

Status read_integer(const Json& config, std::string_view source, std::string_view key, int64_t most, int64_t& out) {
  const Json* v = found(config, key);
  if (!v) return Status::ok();
  const double number = v->is_number() ? v->get<double>() : 0;
  if (!(number >= 1 && number <= static_cast<double>(most)) || number != std::floor(number))
    return wrong(source, key, *v, fmt::format("integers from 1 to {}", most));
  out = static_cast<int64_t>(number);
  return Status::ok();
}

Status read_three(const Json& config, std::string_view source, std::string_view key, double least,
                  std::array<double, 3>& out) {
  const Json* v = found(config, key);
  if (!v) return Status::ok();
  const std::string allowed = fmt::format("three numbers from {} to 100", least);
  if (!v->is_array() || v->size() != out.size()) return wrong(source, key, *v, allowed);
  for (size_t i = 0; i < out.size(); ++i) {
    const double number = (*v)[i].is_number() ? (*v)[i].get<double>() : NAN;
    if (!(number >= least && number <= 100)) return wrong(source, key, *v, allowed);
    out[i] = number;
  }
  return Status::ok();
}

// What a switch must be for what is computed here.
Status want_on(const Json& config, std::string_view source, std::string_view key) {
  const Json* v = found(config, key);
  return !v || *v == true ? Status::ok() : wrong(source, key, *v, "true, null");
}

double half_even(double x) {
  const double down = std::floor(x), rest = x - down;
  if (rest != 0.5) return rest < 0.5 ? down : down + 1;
  return std::fmod(down, 2.0) == 0 ? down : down + 1;
}

}  // namespace

std::string PatchRules::text() const {
  return fmt::format("{} {} {} {} {} {} {} {}", patch, merge, temporal, min_pixels, max_pixels, whole_video,
                     fmt::join(mean, " "), fmt::join(deviation, " "));
}

Result<PatchRules> read_patch_rules(const Json& config, std::string_view source, const PatchRules& missing) {
  PatchRules out = missing;
  if (!config.is_object()) return invalid("{}: not a JSON object", source);
  RETURN_IF_ERROR(read_integer(config, source, "patch_size", kMostSide, out.patch));
  RETURN_IF_ERROR(read_integer(config, source, "merge_size", 16, out.merge));
  RETURN_IF_ERROR(read_integer(config, source, "temporal_patch_size", 16, out.temporal));
  if (const Json* size = found(config, "size")) {
    if (!size->is_object()) return wrong(source, "size", *size, "an object");
    RETURN_IF_ERROR(read_integer(*size, source, "shortest_edge", kMostArea, out.min_pixels));
    RETURN_IF_ERROR(read_integer(*size, source, "longest_edge", kMostArea, out.max_pixels));
  }
  // The older names, which win where both are there.
  RETURN_IF_ERROR(read_integer(config, source, "min_pixels", kMostArea, out.min_pixels));
  RETURN_IF_ERROR(read_integer(config, source, "max_pixels", kMostArea, out.max_pixels));
  if (out.min_pixels > out.max_pixels)
    return invalid("{}: images of {} to {} pixels; allowed: no more at least than at most", source, out.min_pixels,
                   out.max_pixels);
  RETURN_IF_ERROR(read_three(config, source, "image_mean", -100, out.mean));
  RETURN_IF_ERROR(read_three(config, source, "image_std", 1e-3, out.deviation));
  if (const Json* v = found(config, "cap_pixels_per_frame"); v && *v != false)
    return wrong(source, "cap_pixels_per_frame", *v, "false, null");
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    RETURN_IF_ERROR(want_on(config, source, key));
  if (const Json* v = found(config, "resample"); v && *v != 3) return wrong(source, "resample", *v, "3 (bicubic)");
  if (const Json* v = found(config, "rescale_factor");
      v && !(v->is_number() && std::fabs(v->get<double>() * 255 - 1) < 1e-6))
    return wrong(source, "rescale_factor", *v, "1/255");
  return out;
}

Result<ImageSize> smart_resize(ImageSize size, const PatchRules& rules) {
  const auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
  if (std::max(h, w) / std::min(h, w) > kMostAspect)
    return invalid("an image of {} x {} pixels; allowed: a side at most {} times the other", size.width, size.height,
                   kMostAspect);
  const auto unit = static_cast<double>(rules.patch * rules.merge);
  const auto least = static_cast<double>(rules.min_pixels), most = static_cast<double>(rules.max_pixels);
  double height = half_even(h / unit) * unit, width = half_even(w / unit) * unit;
  if (height * width > most) {
    const double by = std::sqrt(h * w / most);
    height = std::max(unit, std::floor(h / by / unit) * unit);
    width = std::max(unit, std::floor(w / by / unit) * unit);
  } else if (height * width < least) {
    const double by = std::sqrt(least / (h * w));
    height = std::ceil(h * by / unit) * unit;
    width = std::ceil(w * by / unit) * unit;
  }
  if (height < 1 || width < 1)
    return invalid("an image of {} x {} pixels is too narrow: rounded to multiples of {} it has no pixels", size.width,
                   size.height, unit);
  return ImageSize{static_cast<int64_t>(height), static_cast<int64_t>(width)};
}

int64_t rounded_frames(int64_t frames, int64_t temporal) {
  return static_cast<int64_t>(half_even(static_cast<double>(frames) / static_cast<double>(temporal))) * temporal;
}

Result<ImageSize> smart_resize_video(int64_t frames, ImageSize size, const PatchRules& rules) {
  if (!rules.whole_video) return smart_resize(size, rules);
  if (frames < rules.temporal) return invalid("a video of {} frames; allowed: at least {}", frames, rules.temporal);
  const auto unit = static_cast<double>(rules.patch * rules.merge);
  auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
  if (h < unit || w < unit) {
    const double by = std::max(unit / h, unit / w);
    h = std::floor(h * by);
    w = std::floor(w * by);
  }
  if (std::max(h, w) / std::min(h, w) > kMostAspect)
    return invalid("frames of {} x {} pixels; allowed: a side at most {} times the other", size.width, size.height,
                   kMostAspect);
  const auto count = static_cast<double>(frames);
  const auto rounded = static_cast<double>(rounded_frames(frames, rules.temporal));
  const auto least = static_cast<double>(rules.min_pixels), most = static_cast<double>(rules.max_pixels);
  double height = half_even(h / unit) * unit, width = half_even(w / unit) * unit;
  if (rounded * height * width > most) {
    const double by = std::sqrt(count * h * w / most);
    height = std::max(unit, std::floor(h / by / unit) * unit);
    width = std::max(unit, std::floor(w / by / unit) * unit);
  } else if (rounded * height * width < least) {
    const double by = std::sqrt(least / (count * h * w));
    height = std::ceil(h * by / unit) * unit;
    width = std::ceil(w * by / unit) * unit;
  }
  return ImageSize{static_cast<int64_t>(height), static_cast<int64_t>(width)};
}

Result<Patches> make_patches(const Pixels& image, const PatchRules& rules) {
  ASSIGN_OR_RETURN(const ImageSize size, smart_resize({image.height, image.width}, rules));
  const Pixels pixels = resize_bicubic(image, size);
  return cut_patches({&pixels, 1}, rules);
}

Patches cut_patches(std::span<const Pixels> frames, const PatchRules& rules) {
  const int64_t p = rules.patch, m = rules.merge;
  Patches out{frames[0].height / p, frames[0].width / p, rules.width(), {}};
  out.data.resize(static_cast<size_t>(out.count() * out.width));
  // transformers folds the division by 255 into mean and deviation.
  std::array<std::array<float, 256>, 3> level;
  for (size_t c = 0; c < 3; ++c)
    for (size_t v = 0; v < 256; ++v)
      level[c][v] = (static_cast<float>(v) - static_cast<float>(rules.mean[c] * 255)) /
                    static_cast<float>(rules.deviation[c] * 255);
  float* to = out.data.data();
  const auto patch_at = [&](int64_t row, int64_t column) {
    for (size_t c = 0; c < 3; ++c)
      for (int64_t frame = 0; frame < rules.temporal; ++frame)
        for (int64_t y = 0; y < p; ++y) {
          const Pixels& pixels = frames[std::min(static_cast<size_t>(frame), frames.size() - 1)];
          const uint8_t* from = pixels.rgb.data() + ((row * p + y) * pixels.width + column * p) * 3 + c;
          for (int64_t x = 0; x < p; ++x) *to++ = level[c][from[x * 3]];
        }
  };
  for (int64_t i = 0; i < out.rows; i += m)
    for (int64_t j = 0; j < out.columns; j += m)
      for (int64_t k = 0; k < m * m; ++k) patch_at(i + k / m, j + k % m);
  return out;
}

}  // namespace reprise::images
