#include "server/request_reader.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "base/lower_case.h"

namespace reprise::server {
namespace {

constexpr size_t kMostFields = 128;
constexpr size_t kMostSizeDigits = 15;  // 2^60 bytes
constexpr size_t kQuoted = 40;          // of the client's bytes in an error

bool is_token(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return is_token(c); });
}
// Visible, a blank, or part of a character that is not ASCII.
bool is_field_text(char c) { return c == '\t' || (static_cast<unsigned char>(c) >= 32 && c != 127); }

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// For an error, which is JSON and a line.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kQuoted)) out += c > 31 && c < 127 && c != '"' && c != '\\' ? c : '?';
  return text.size() > kQuoted ? out + "..." : out;
}

int digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// Fields whose meaning is one value: who asks, for whom, from where, and how long the request is.
constexpr std::array kOnce = {
    "host",           "content-length", "transfer-encoding", "authorization",      "content-type", "origin",
    "sec-fetch-site", "expect",         "referer",           "proxy-authorization"};

template <typename F>
void each_member(std::string_view list, F f) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    f(trimmed(list.substr(0, comma)));
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<std::string> host_name(std::string_view host) {
  size_t end = host.rfind(':');
  if (host.starts_with('[')) {
    const size_t close = host.find(']');
    if (close == std::string_view::npos || close < 3) return std::nullopt;
    for (const char c : host.substr(1, close - 1))
      if (digit(c) < 0 && c != ':' && c != '.') return std::nullopt;
    end = close + 1 == host.size() ? std::string_view::npos : close + 1;
    if (end != std::string_view::npos && host[end] != ':') return std::nullopt;
  }
  const std::string_view name = host.substr(0, end);
  if (end != std::string_view::npos) {
    const std::string_view port = host.substr(end + 1);
    if (port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  }
  if (!host.starts_with('['))
    for (const char c : name)
      if (!is_token(c) || c == '`' || c == '^' || c == '|' || c == '#') return std::nullopt;
  if (name.empty()) return std::nullopt;
  return lower_case(name);
}

size_t RequestReader::held_bytes() const {
  // A field costs a node of the map besides its text.
  constexpr size_t kField = 128;
  return head_ + request_.headers.size() * kField + line_.size() + request_.body.size();
}

void RequestReader::refuse(int status, std::string problem) {
  if (state_ == State::Refused) return;
  state_ = State::Refused;
  keep_alive_ = false;
  status_ = status;
  problem_ = std::move(problem);
  line_.clear();
  request_.body.clear();
  request_.body.shrink_to_fit();
}

// Takes bytes up to a line's end, a few at a time: the caller looks after the limits.
size_t RequestReader::take_line(std::string_view bytes) {
  constexpr size_t kAtOnce = 512;
  bytes = bytes.substr(0, kAtOnce);
  const size_t end = bytes.find('\n');
  const size_t n = end == std::string_view::npos ? bytes.size() : end + 1;
  line_.append(bytes.substr(0, n));
  if (end == std::string_view::npos) return n;
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') {
    refuse(400, "a line ends without a carriage return");
    return n;
  }
  line_.resize(line_.size() - 2);
  line_whole_ = true;
  return n;
}

// The bytes of the line that is begun count before it is complete.
void RequestReader::count(size_t n) {
  if (part_ == Part::Head) {
    head_ += n;
    if (head_ > limits_.head_bytes)
      refuse(431, fmt::format("the headers are larger than {} bytes", limits_.head_bytes));
    return;
  }
  // A size has few digits; what else stands in its line is an extension. Trailers are extra to their line's end. What
  // counts so far is never more than what counts in the end, so the outcome is the same in any pieces.
  const size_t bytes = line_.size() + (line_whole_ ? 2 : 0);
  const size_t plain = part_ == Part::Trailer ? 0 : kMostSizeDigits + 2;
  const size_t extra = bytes > plain ? bytes - plain : 0;
  if (line_whole_) frame_ += std::min(bytes, plain);
  if (part_ == Part::ChunkEnd && !line_whole_ && line_ != "\r") refuse(400, "a chunk is longer than its size");
  if (extra_ + extra > limits_.head_bytes)
    refuse(431, fmt::format("trailers and chunk extensions are larger than {} bytes", limits_.head_bytes));
  if (frame_ > limits_.body_bytes)
    refuse(413, fmt::format("what stands around the chunks is larger than {} bytes", limits_.body_bytes));
  if (line_whole_) extra_ += extra;
}

size_t RequestReader::take_data(std::string_view bytes) {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  request_.body.append(bytes.substr(0, n));
  left_ -= n;
  if (left_ > 0) return n;
  if (part_ == Part::Data)
    state_ = State::Complete;
  else
    part_ = Part::ChunkEnd;
  return n;
}

size_t RequestReader::take(std::string_view bytes) {
  const size_t all = bytes.size();
  const State begin = state_;
  while (!bytes.empty() && state_ == begin) {
    const bool data = part_ == Part::Data || part_ == Part::ChunkData;
    const size_t n = data ? take_data(bytes) : take_line(bytes);
    bytes.remove_prefix(n);
    taken_ += n;
    if (data) continue;
    if (state_ != State::Refused) count(n);
    if (!line_whole_) continue;
    if (state_ != State::Refused) read_line();
    line_.clear();
    line_whole_ = false;
  }
  return all - bytes.size();
}

void RequestReader::read_line() {
  switch (part_) {
    case Part::Head:
      if (!started_) {
        // RFC 9112 2.2: empty lines before a request are passed over; their bytes count.
        if (!line_.empty()) read_request_line(line_);
      } else if (line_.empty()) {
        end_head();
      } else {
        read_field(line_);
      }
      break;
    case Part::ChunkSize: read_chunk_size(line_); break;
    case Part::ChunkEnd:
      if (!line_.empty()) return refuse(400, "a chunk is longer than its size");
      part_ = Part::ChunkSize;
      break;
    case Part::Trailer:
      // They are checked, and change nothing: a client may not add to the head of a request that was let in.
      if (line_.empty()) {
        state_ = State::Complete;
      } else {
        const size_t colon = line_.find(':');
        if (colon == std::string::npos || !is_token(std::string_view(line_).substr(0, colon)) ||
            !std::all_of(line_.begin(), line_.end(), [](char c) { return is_field_text(c); }))
          refuse(400, "a trailer is not a field");
      }
      break;
    default: break;
  }
}

void RequestReader::read_request_line(std::string_view line) {
  started_ = true;
  const auto wrong = [&] { refuse(400, "the request is not valid HTTP: \"" + shown(line) + "\" is no request line"); };
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return wrong();
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(method) || target.empty() ||
      !std::all_of(target.begin(), target.end(), [](char c) { return c > 32 && c < 127; }))
    return wrong();
  if (version.size() != 8 || !version.starts_with("HTTP/") || digit(version[5]) < 0 || digit(version[5]) > 9 ||
      version[6] != '.' || digit(version[7]) < 0 || digit(version[7]) > 9)
    return wrong();
  if (version[5] != '1') return refuse(505, "this server speaks HTTP/1.1, not " + std::string(version));
  http11_ = version[7] != '0';
  request_.method = method;
  if (!target.starts_with('/') && target != "*") {
    // A proxy's form; the host in it counts, and Host does not (RFC 9112 3.2.2).
    constexpr std::string_view kHttp = "http://";
    if (target.size() <= kHttp.size() || lower_case(target.substr(0, kHttp.size())) != kHttp) return wrong();
    target.remove_prefix(kHttp.size());
    const std::string_view authority = target.substr(0, target.find_first_of("/?"));
    if (!host_name(authority)) return wrong();
    request_.authority = authority;
    target.remove_prefix(authority.size());
  }
  const size_t question = target.find('?');
  request_.path = percent_decoded(target.substr(0, question));
  if (request_.path.empty()) request_.path = "/";  // of a proxy's form
  if (question != std::string_view::npos) request_.query = target.substr(question + 1);
}

void RequestReader::read_field(std::string_view line) {
  if (line[0] == ' ' || line[0] == '\t') return refuse(400, "a header goes on in a second line, which is obsolete");
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || !is_token(name))
    return refuse(400, "the request is not valid HTTP: \"" + shown(line) + "\" is no header");
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), [](char c) { return is_field_text(c); }))
    return refuse(400, "the header " + shown(name) + " has a control character");
  const auto [at, is_new] = request_.headers.emplace(lower_case(name), value);
  if (is_new) {
    if (request_.headers.size() > kMostFields) refuse(431, fmt::format("there are more than {} headers", kMostFields));
    return;
  }
  // One of them may be what a proxy in front has checked, and the other what is read here.
  if (std::find(kOnce.begin(), kOnce.end(), at->first) != kOnce.end())
    return refuse(400, "there is more than one header " + at->first);
  at->second += ", ";
  at->second += value;
}

void RequestReader::end_head() {
  const auto host = request_.headers.find("host");
  if (host == request_.headers.end() && http11_) return refuse(400, "an HTTP/1.1 request needs a Host header");
  if (host != request_.headers.end() && !host->second.empty() && !host_name(host->second))
    return refuse(400, "the Host header \"" + shown(host->second) + "\" is no host");
  if (!request_.authority.empty()) request_.headers["host"] = request_.authority;
  read_connection();
  read_framing();
  if (state_ == State::Refused) return;
  if (const auto expect = request_.headers.find("expect"); expect != request_.headers.end()) {
    if (lower_case(expect->second) != "100-continue")
      return refuse(417, "the expectation \"" + shown(expect->second) + "\" is not known; there is 100-continue");
    expects_continue_ = http11_;
  }
  if (chunked_) {
    part_ = Part::ChunkSize;
  } else {
    part_ = Part::Data;
    left_ = length_.value_or(0);
    if (left_ > limits_.body_bytes)
      return refuse(413, fmt::format("the body is larger than {} bytes", limits_.body_bytes));
  }
  state_ = chunked_ || left_ > 0 ? State::Body : State::Complete;
}

void RequestReader::read_connection() {
  keep_alive_ = http11_;
  const auto connection = request_.headers.find("connection");
  if (connection == request_.headers.end()) return;
  bool close = false, keep = false;
  each_member(connection->second, [&](std::string_view option) {
    close |= lower_case(option) == "close";
    keep |= lower_case(option) == "keep-alive";
  });
  keep_alive_ = !close && (http11_ || keep);
}

// How long the body is: RFC 9112 6.3, without the choices it leaves.
void RequestReader::read_framing() {
  const auto coding = request_.headers.find("transfer-encoding");
  const auto length = request_.headers.find("content-length");
  if (coding != request_.headers.end()) {
    if (length != request_.headers.end()) return refuse(400, "there are both Transfer-Encoding and Content-Length");
    if (!http11_) return refuse(400, "Transfer-Encoding does not belong to HTTP/1.0");
    if (lower_case(coding->second) != "chunked")
      return refuse(400, "the Transfer-Encoding \"" + shown(coding->second) + "\" is not supported; there is chunked");
    chunked_ = true;
  } else if (length != request_.headers.end()) {
    const std::string& digits = length->second;
    uint64_t n = 0;
    const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos ||
        bad == std::errc::result_out_of_range || end != digits.data() + digits.size())
      return refuse(400, "the Content-Length \"" + shown(digits) + "\" is not a number of bytes");
    length_ = n;
  }
}

void RequestReader::read_chunk_size(std::string_view line) {
  size_t digits = 0;
  uint64_t size = 0;
  while (digits < line.size() && digit(line[digits]) >= 0) {
    if (digits == kMostSizeDigits) return refuse(400, "a chunk's size has too many digits");
    size = size * 16 + static_cast<uint64_t>(digit(line[digits++]));
  }
  const std::string_view extension = trimmed(line.substr(digits));
  if (digits == 0 || (!extension.empty() && extension[0] != ';') ||
      !std::all_of(extension.begin(), extension.end(), [](char c) { return is_field_text(c); }))
    return refuse(400, "\"" + shown(line) + "\" is not a chunk's size");
  if (size > limits_.body_bytes - request_.body.size())
    return refuse(413, fmt::format("the body is larger than {} bytes", limits_.body_bytes));
  left_ = size;
  part_ = size > 0 ? Part::ChunkData : Part::Trailer;
}

}  // namespace reprise::server
