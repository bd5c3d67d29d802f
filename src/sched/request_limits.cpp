#include "sched/request_limits.h"

#include <algorithm>

#include "kv/kv_pool.h"

namespace reprise::sched {
namespace {

// Images lie in the prompt, one behind the other, and the executor takes them.
Status check_images(const Request& request, engine::Executor& executor) {
  int64_t end = 0;
  for (const engine::SequenceImage& i : request.images) {
    const int64_t most = executor.max_image_rows(), count = i.high * i.wide;
    if (most == 0) return error(Code::Unsupported, "this model reads no images");
    if (count < 1 || count > most) return invalid("an image of {} tokens; allowed: 1 to {}", count, most);
    if (!i.input || i.first < end || i.first + count > static_cast<int64_t>(request.prompt.size()))
      return error(Code::Internal, "an image at token {} of {}", i.first, request.prompt.size());
    end = i.first + count;
  }
  return Status::ok();
}

}  // namespace

Status check_request(const Request& request, engine::Executor& executor) {
  const int64_t vocab = executor.vocab_size(), context = executor.context_length();
  const auto size = static_cast<int64_t>(request.prompt.size());
  if (!request.sink) return invalid("a request needs a sink");
  if (size == 0) return invalid("the prompt is empty; at least one token is needed");
  const bool pooled = executor.pooled_size() > 0;
  if (pooled && size > context) return invalid("the text is {} tokens long and the context {}", size, context);
  if (executor.whole_prompts() && size > executor.max_step_tokens())
    return invalid("the text is {} tokens long, and a step computes {} (`chunked_prefill_size`)", size,
                   executor.max_step_tokens());
  if (request.score_from) {
    if (pooled) return error(Code::Unsupported, "this model gives vectors or scores of texts, and predicts no tokens");
    if (*request.score_from < 1 || *request.score_from >= size)
      return invalid("a prompt of {} tokens scored from {} on; allowed: 1 to the last", size, *request.score_from);
    if (size > context) return invalid("the text is {} tokens long and the context {}", size, context);
  } else if (!pooled && size >= context) {
    return invalid("the prompt is {} tokens long and the context {}: there is no room for an answer", size, context);
  }
  for (int32_t id : request.prompt)
    if (id < 0 || id >= vocab)
      return invalid("the prompt holds token {}, which is not in the vocabulary (0 to {})", id, vocab - 1);
  RETURN_IF_ERROR(check_images(request, executor));
  const int64_t pages = executor.kv_pool().total_pages();
  if (kv::pages_for(size - (request.score_from ? 1 : 0)) > pages)
    return error(Code::Invalid,
                 "the prompt of {} tokens needs {} KV pages of {} tokens, but the pool has {} (`max_total_tokens`, "
                 "`mem_fraction_static`)",
                 size, kv::pages_for(size), kv::kPageTokens, pages);
  return request.sampling.check(vocab);
}

// The last token that is generated needs no place in the cache.
int64_t most_new_tokens(const Request& request, engine::Executor& executor) {
  if (executor.pooled_size() > 0 || request.score_from) return 0;
  const auto size = static_cast<int64_t>(request.prompt.size());
  const int64_t room =
      std::min(executor.context_length() - size, executor.kv_pool().total_pages() * kv::kPageTokens - size + 1);
  return std::min(request.sampling.max_new_tokens, room);
}

}  // namespace reprise::sched
