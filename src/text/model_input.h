// What models that give vectors and scores read: a text with its tokens within a bound, a pair of texts, and the prompt
// of rerankers that answer yes or no, as Qwen3-Reranker was trained with it. Pure functions; any thread.
#pragma once

#include <string_view>

#include "text/tokenizer.h"

namespace reprise::text {

// A text of more than `most` tokens loses its end where `truncate` says so, and is else an error. `at_end`: the last
// token is the vector's (Tokenizer::encode_within).
Result<EncodedPair> encode_text(const Tokenizer& tokenizer, std::string_view text, int64_t most, bool truncate,
                                bool at_end);

constexpr std::string_view kUsualInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

// A query and a document, which loses its end where both would be more than `most` tokens. `judged`: as the prompt
// whose answer is yes or no; special tokens written in the three texts are text there.
Result<EncodedPair> encode_query(const Tokenizer& tokenizer, bool judged, std::string_view instruction,
                                 std::string_view query, std::string_view document, int64_t most);

}  // namespace reprise::text
