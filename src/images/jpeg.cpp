// JPEG through libjpeg-turbo with the settings that Pillow leaves alone. A file of four colours is taken for Adobe's,
// whose inks are stored inverted, as Pillow does.
#include <algorithm>
#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which needs it
#include <cstring>

#include <jerror.h>
#include <jpeglib.h>

#include "images/formats.h"

namespace reprise::images {
namespace {

// Scans of one file: a file of a few kilobytes may ask for thousands of passes over all pixels.
constexpr int kMostScans = 128;
constexpr unsigned kExifBytes = 0xffff;

struct Failure {
  jpeg_error_mgr base;  // first, so that the library's pointer is ours
  std::jmp_buf where;
  char message[JMSG_LENGTH_MAX] = {};
};

void on_error(j_common_ptr jpeg) {
  auto* failure = reinterpret_cast<Failure*>(jpeg->err);
  jpeg->err->format_message(jpeg, failure->message);
  std::longjmp(failure->where, 1);  // NOLINT: the library's way of failing
}

// A file that ends early is an error, as in Pillow; the library would go on with grey.
void on_message(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) on_error(jpeg);
}

void on_progress(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMostScans) return;
  auto* failure = reinterpret_cast<Failure*>(jpeg->err);
  (void)std::snprintf(failure->message, sizeof failure->message, "more than %d scans", kMostScans);
  std::longjmp(failure->where, 1);  // NOLINT
}

// The calls that may jump. Nothing in here has a destructor.
bool read_header(jpeg_decompress_struct& jpeg, Failure& failure, std::span<const uint8_t> bytes) {
  if (setjmp(failure.where)) return false;  // NOLINT
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, kExifBytes);
  jpeg_read_header(&jpeg, TRUE);
  const bool inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  return true;
}

bool read_rows(jpeg_decompress_struct& jpeg, Failure& failure, uint8_t* to, size_t row) {
  if (setjmp(failure.where)) return false;  // NOLINT
  jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW line = to + jpeg.output_scanline * row;
    jpeg_read_scanlines(&jpeg, &line, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

// Pillow's cmyk2rgb (Convert.c): a colour is what black leaves, less its ink's share of that.
void inks_to_colours(Decoded& image) {
  const auto share = [](uint32_t a, uint32_t b) {
    const uint32_t t = a * b + 128;
    return ((t >> 8) + t) >> 8;
  };
  const uint8_t* from = image.data.data();
  uint8_t* to = image.data.data();
  const size_t pixels = static_cast<size_t>(image.width * image.height);
  for (size_t i = 0; i < pixels; ++i, from += 4, to += 3) {
    const uint32_t left = from[3];  // 255 less the ink, as all four are stored
    for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(left - share(255u - from[c], left));
  }
  image.channels = 3;
  image.data.resize(pixels * 3);
}

Status read(jpeg_decompress_struct& jpeg, Failure& failure, std::span<const uint8_t> bytes, const DecodeLimits& limits,
            Decoded& out) {
  const auto broken = [&] { return invalid("a JPEG file that cannot be read: {}", failure.message); };
  if (!read_header(jpeg, failure, bytes)) return broken();
  const int channels = jpeg.out_color_space == JCS_CMYK ? 4 : 3;
  RETURN_IF_ERROR(out.set_size(jpeg.image_width, jpeg.image_height, channels, limits));
  for (const jpeg_marker_struct* m = jpeg.marker_list; m; m = m->next)
    if (m->data_length >= 6 && std::memcmp(m->data, "Exif\0", 6) == 0) {
      out.orientation = exif_orientation({m->data, m->data_length});
      break;
    }
  if (!read_rows(jpeg, failure, out.data.data(), static_cast<size_t>(out.width * channels))) return broken();
  if (channels == 4) inks_to_colours(out);
  return Status::ok();
}

}  // namespace

Status read_jpeg(std::span<const uint8_t> bytes, const DecodeLimits& limits, Decoded& out) {
  jpeg_decompress_struct jpeg{};
  Failure failure{};
  jpeg.err = jpeg_std_error(&failure.base);
  failure.base.error_exit = on_error;
  failure.base.emit_message = on_message;
  jpeg_progress_mgr progress{};
  progress.progress_monitor = on_progress;
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &progress;
  const Status read_all = read(jpeg, failure, bytes, limits, out);
  jpeg_destroy_decompress(&jpeg);
  return read_all;
}

}  // namespace reprise::images
