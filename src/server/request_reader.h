// RequestReader: one HTTP/1.x request out of bytes that arrive in any pieces, read as RFC 9112 has it and no other way.
//
// What two readers could take for two different requests is refused: a Transfer-Encoding that is not exactly "chunked"
// or stands next to a Content-Length, lengths that are not plain digits or are given twice, folded lines, blanks before
// a colon, lines that end without a carriage return, headers that may come once and come twice. Every byte counts
// against a limit: those of the head, and trailers and chunk extensions together, against `head_bytes`; data against
// `body_bytes`, and so do, by themselves, the sizes and line ends around chunks. It holds the head until it is
// complete, then one line or the data, and copies nothing twice. No sockets; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace reprise::server {

// Percent escapes; what is not one stays.
std::string percent_decoded(std::string_view text);

struct ReaderLimits {
  size_t head_bytes = 16 * 1024;
  size_t body_bytes = 16 * 1024 * 1024;
};

class RequestReader {
 public:
  enum class State : uint8_t { Head, Body, Complete, Refused };

  explicit RequestReader(const ReaderLimits& limits) : limits_(limits) {}

  // Takes bytes, as many as it returns: all of them, or fewer when the state has changed to Body, Complete or Refused.
  // After Body it takes more; after Complete the rest belongs to the next request.
  size_t take(std::string_view bytes);

  State state() const { return state_; }
  // The head is there from Body on, the body when it is Complete.
  HttpRequest& request() { return request_; }
  bool http11() const { return http11_; }
  bool keep_alive() const { return keep_alive_; }
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_; }
  std::optional<uint64_t> content_length() const { return length_; }
  uint64_t taken() const { return taken_; }  // bytes of the request so far
  size_t held_bytes() const;                 // of memory, about
  // Only for Refused.
  int status() const { return status_; }
  const std::string& problem() const { return problem_; }

 private:
  enum class Part : uint8_t { Head, Data, ChunkSize, ChunkData, ChunkEnd, Trailer };

  size_t take_line(std::string_view bytes);
  void count(size_t n);
  size_t take_data(std::string_view bytes);
  void refuse(int status, std::string problem);
  void read_line();
  void read_request_line(std::string_view line);
  void read_field(std::string_view line);
  void read_chunk_size(std::string_view line);
  void end_head();
  void read_framing();
  void read_connection();

  const ReaderLimits limits_;
  HttpRequest request_;
  State state_ = State::Head;
  Part part_ = Part::Head;
  std::string line_;  // begun
  bool line_whole_ = false, started_ = false;
  bool http11_ = true, keep_alive_ = true, expects_continue_ = false, chunked_ = false;
  std::optional<uint64_t> length_;
  uint64_t left_ = 0;  // data of the body or of the chunk that is still to come
  uint64_t taken_ = 0;
  size_t head_ = 0, extra_ = 0, frame_ = 0;  // bytes: of the head; of extensions and trailers; around chunks
  int status_ = 400;
  std::string problem_;
};

// The host of a Host header or of an authority, in lower case and without its port; nullopt when it is none.
std::optional<std::string> host_name(std::string_view host);

}  // namespace reprise::server
