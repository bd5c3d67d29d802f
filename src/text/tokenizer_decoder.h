// Decoder: the "decoder" of a tokenizer.json, a chain of stages that turns tokens back into text, fed one token at a
// time. Decoding a whole list and decoding as a model speaks run through the same stages, so they cannot differ. Only
// whole characters come out. Immutable, any thread; a DecoderState belongs to one stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_pattern.h"

namespace reprise::text {

struct DecoderState {
  struct Stage {
    std::string pending;  // bytes that wait for more
    size_t tokens = 0;    // seen so far
    size_t cut = 0;       // characters taken from the front
    size_t held = 0;      // characters that will go if nothing follows
    bool front_done = false;
  };
  std::vector<Stage> stages;
  // Bytes that came in, and bytes that replacing made of them; hostile files could let a token grow without end.
  size_t fed = 0;
  size_t replaced = 0;
};

class Decoder {
 public:
  Decoder() = default;  // tokens as they are, side by side
  static Result<Decoder> from_json(const JsonPlace& place);

  void add_spaces_between();  // what a tokenizer.json without a decoder means
  void add_byte_level();
  void add_replace(TextPattern pattern, std::string content);
  void add_byte_fallback();
  void add_fuse();
  // `drop_first`: nothing stands for the replacement in the first token.
  void add_metaspace(std::string replacement, bool drop_first);
  // A token that begins with `prefix` goes on with the word before it. `cleanup`: no space in front of punctuation.
  void add_word_pieces(std::string prefix, bool cleanup);
  void add_strip(std::string character, size_t from_front, size_t from_back);

  DecoderState start() const { return {std::vector<DecoderState::Stage>(stages_.size())}; }
  // Appends the text that is certain after this token.
  Status feed(DecoderState* state, std::string_view token, std::string* out) const {
    state->fed += token.size();
    return feed(0, state, token, out);
  }
  // The bytes that this token adds to a text, with other tokens around it. They need not be whole characters.
  Result<std::string> bytes_of(std::string_view token) const;
  // Appends what the last tokens still held back.
  Status finish(DecoderState* state, std::string* out) const;

 private:
  enum class Kind : uint8_t { SpacesBetween, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece };
  struct Stage {
    Kind kind;
    bool fused = false;                     // the stages before made one token of all; what comes in are its parts
    std::vector<TextPattern> pattern = {};  // one for Replace
    std::string content = {};
    size_t from_front = 0;
    size_t from_back = 0;
    bool drop_first = false;  // for Metaspace
    bool cleanup = false;     // for WordPiece
  };

  Status add_json(const JsonPlace& place);
  void add(Stage stage);
  bool waits_for_all(const Stage& stage) const;
  Status feed(size_t index, DecoderState* state, std::string_view token, std::string* out) const;
  Status feed_whole(size_t index, DecoderState* state, std::string_view token, std::string* out) const;
  Status flush_bytes(size_t index, DecoderState* state, std::string* out) const;
  static std::string word_piece(const Stage& stage, std::string_view token, bool first);
  std::string strip_token(const Stage& stage, std::string_view token) const;
  std::string strip_part(const Stage& stage, DecoderState::Stage* state, std::string_view part) const;

  std::vector<Stage> stages_;
  bool fused_ = false;
};

}  // namespace reprise::text
