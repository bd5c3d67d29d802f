// Bytes given to the reader of requests: whole, byte by byte, and in pieces. However they are cut they are the same
// request or the same refusal; what it holds stays within its limits; what it takes as a request has one length only,
// and written out again it is read as the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "server/request_reader.h"

using namespace reprise::server;

namespace {

constexpr ReaderLimits kLimits{512, 1024};
// The fields of a head beside its bytes, and what a string keeps in reserve.
constexpr size_t kMostHeld = 512 + 128 * 132 + 4 * (512 + 1024 + 1024);

struct Outcome {
  RequestReader reader{kLimits};
  size_t taken = 0;
};

Outcome read(std::string_view bytes, size_t piece) {
  Outcome out;
  RequestReader& r = out.reader;
  while (out.taken < bytes.size() && r.state() != RequestReader::State::Complete &&
         r.state() != RequestReader::State::Refused) {
    const std::string_view some = bytes.substr(out.taken, piece);
    const size_t n = r.take(some);
    if (n == 0 || n > some.size()) std::abort();
    out.taken += n;
    if (r.held_bytes() > kMostHeld) std::abort();
  }
  if (r.taken() != out.taken) std::abort();
  return out;
}

void check_refused(const RequestReader& r) {
  if (r.status() < 400 || r.status() > 599 || r.problem().empty() || r.keep_alive()) std::abort();
  // It is written into a line and into JSON.
  for (const char c : r.problem())
    if (c < 32 || c == 127) std::abort();
}

void check_complete(RequestReader& r) {
  const HttpRequest& q = r.request();
  const bool chunked = q.headers.contains("transfer-encoding");
  if (q.body.size() > kLimits.body_bytes || (chunked && q.headers.contains("content-length"))) std::abort();
  if (!chunked && q.body.size() != r.content_length().value_or(0)) std::abort();
  std::string again = q.method + " /x HTTP/1." + (r.http11() ? "1" : "0") + "\r\n";
  for (const auto& [name, value] : q.headers) {
    if (value.find_first_of("\r\n") != std::string::npos || value.find('\0') != std::string::npos) std::abort();
    if (name != "transfer-encoding" && name != "content-length") again += name + ":" + value + "\r\n";
  }
  again += fmt::format("content-length:{}\r\n\r\n{}GET /", q.body.size(), q.body);
  // Room for the line that says the length; empty values and joined ones may have been shorter.
  RequestReader second({8192, kLimits.body_bytes});
  size_t at = 0;
  while (at < again.size() && second.state() != RequestReader::State::Complete) {
    if (second.state() == RequestReader::State::Refused) std::abort();
    at += second.take(std::string_view(again).substr(at));
  }
  if (again.size() - at != 5 || second.request().body != q.body) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Outcome whole = read(bytes, SIZE_MAX);
  for (const size_t piece : {size_t{1}, size_t{7}}) {
    Outcome other = read(bytes, piece);
    if (other.reader.state() != whole.reader.state()) std::abort();
    if (whole.reader.state() == RequestReader::State::Complete &&
        (other.taken != whole.taken || other.reader.request().body != whole.reader.request().body ||
         other.reader.request().headers != whole.reader.request().headers))
      std::abort();
  }
  if (whole.reader.state() == RequestReader::State::Refused) check_refused(whole.reader);
  if (whole.reader.state() == RequestReader::State::Complete) check_complete(whole.reader);
  return 0;
}
