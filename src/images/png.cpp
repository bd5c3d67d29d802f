// PNG through libpng: palettes, grey and 16 bits become 8-bit colours as Pillow reads them (the high byte, no gamma).
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>

#include "images/formats.h"

namespace reprise::images {
namespace {

constexpr uint32_t kMostChunks = 64;
constexpr size_t kMostChunkBytes = size_t{4} << 20;  // of a chunk besides the pixels

struct Source {
  std::span<const uint8_t> bytes;
  char message[160] = {};
};

void on_error(png_structp png, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::strncpy(source->message, message, sizeof source->message - 1);
  std::longjmp(png_jmpbuf(png), 1);  // NOLINT: libpng's way of failing
}
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (count > source->bytes.size()) png_error(png, "the file ends early");
  std::memcpy(out, source->bytes.data(), count);
  source->bytes = source->bytes.subspan(count);
}

// The calls that may jump. Nothing in here has a destructor.
bool read_header(png_structp png, png_infop info, png_uint_32& width, png_uint_32& height, bool& alpha) {
  if (setjmp(png_jmpbuf(png))) return false;  // NOLINT
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
  png_set_chunk_cache_max(png, kMostChunks);
  png_set_chunk_malloc_max(png, kMostChunkBytes);
  png_read_info(png, info);
  width = png_get_image_width(png, info);
  height = png_get_image_height(png, info);
  const int type = png_get_color_type(png, info);
  alpha = (type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (png_get_valid(png, info, PNG_INFO_tRNS) != 0) png_set_tRNS_to_alpha(png);
  if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  png_set_strip_16(png);
  (void)png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}

bool read_rows(png_structp png, png_infop info, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png))) return false;  // NOLINT
  png_read_image(png, rows);
  png_read_end(png, info);
  return true;
}

Status read(png_structp png, png_infop info, Source& source, const DecodeLimits& limits, Decoded& out) {
  const auto broken = [&] { return invalid("a PNG file that cannot be read: {}", source.message); };
  png_set_read_fn(png, &source, read_bytes);
  png_uint_32 width = 0, height = 0;
  bool alpha = false;
  if (!read_header(png, info, width, height, alpha)) return broken();
  RETURN_IF_ERROR(out.set_size(width, height, alpha ? 4 : 3, limits));
  if (png_get_rowbytes(png, info) != static_cast<size_t>(out.width * out.channels))
    return error(Code::Internal, "a row of a PNG file has {} bytes", png_get_rowbytes(png, info));
  std::vector<png_bytep> rows(static_cast<size_t>(out.height));
  for (int64_t y = 0; y < out.height; ++y) rows[static_cast<size_t>(y)] = out.row(y);
  if (!read_rows(png, info, rows.data())) return broken();
  png_bytep exif = nullptr;
  png_uint_32 size = 0;
  if (png_get_eXIf_1(png, info, &size, &exif) != 0) out.orientation = exif_orientation({exif, size});
  return Status::ok();
}

}  // namespace

Status read_png(std::span<const uint8_t> bytes, const DecodeLimits& limits, Decoded& out) {
  Source source{bytes};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const Status read_all =
      info ? read(png, info, source, limits, out) : error(Code::OutOfMemory, "no memory for libpng");
  png_destroy_read_struct(&png, &info, nullptr);
  return read_all;
}

}  // namespace reprise::images
