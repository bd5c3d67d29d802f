// Heads that draft from hidden states, on the tiny checkpoints of tests/data/heads (tools/golden/make_draft_heads.py):
// a model that keeps rows, its head joined to it, and what the head guesses when it reads a text anew.
#pragma once

#include "models/draft_head.h"
#include "support/tiny_models.h"

namespace reprise::testing_support {

struct HeadSetup {
  // Folders; the same one for a layer of the checkpoint, and no head for a model that keeps nothing.
  std::string model = {}, head = {};
  DType dtype = DType::F32;
  std::optional<engine::GraphPolicy> policy = {};
  std::optional<GraphMode> decode = {}, prefill = {};
  int64_t pages = 40, chunk = 256, rows = 32, context = 256;
  DeviceKind device = DeviceKind::Cpu;              // Ascend: the simulator
  const CudaStandIn* cuda = nullptr;                // in place of a GPU
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks
};

inline std::string head_path(const std::string& name) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/" + name;
}

inline Result<std::unique_ptr<engine::Engine>> open_with_head(const HeadSetup& s) {
  DeviceOptions device;
  device.threads = s.member ? 1 : 2;
  device.member = s.member;
  device.pin_threads = false;
  device.kind = s.device;
  device.ascend_runtime = "sim";
  device.cuda_stand_in = s.cuda;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  device.shared = platform.device;
  ASSIGN_OR_RETURN(Platform other, make_platform(device));
  engine::EngineOptions o;
  o.member = s.member;
  o.dtype = s.dtype;
  o.context_length = s.context;
  o.chunked_prefill_size = s.chunk;
  o.max_running_requests = s.rows;
  o.max_total_tokens = s.pages * kv::kPageTokens;
  if (s.policy) o.graph.policy = *s.policy;
  if (s.decode) o.graph.decode = *s.decode;
  if (s.prefill) o.graph.prefill = *s.prefill;
  if (s.device != DeviceKind::Cpu) {  // every size is a capture of its own
    o.graph.decode_sizes = {s.rows};
    o.graph.prefill_sizes = {std::min<int64_t>(s.chunk, 64)};
  }
  if (s.head.empty()) {
    o.model_path = head_path(s.model);
    return engine::Engine::create(o, std::move(platform));
  }
  o.most_drafts = 7;  // of a model with states
  engine::EngineOptions of_head = o;
  o.graph.verify = {4};
  of_head.graph.decode_sizes.clear();  // their steps with several rows of a text have no more rows than these
  of_head.graph.verify = {4, true, engine::VerifyRows::kSequences};
  of_head.captures_later = true;  // with the sizes of the model's pool
  of_head.model_path = head_path(s.head);
  o.model_path = head_path(s.model);
  o.kept_rows = engine::KeptRows::Last;
  if (s.head == s.model) {
    of_head.prediction = true;
  } else {
    const bool three = s.head.ends_with("eagle3");
    of_head.families = {three ? &models::eagle::kEagle3 : &models::eagle::kEagle};
    of_head.borrows_from = o.model_path;
    if (three) o.kept_rows = engine::KeptRows::Layers, o.kept_layers = {1, 2, 3};
  }
  ASSIGN_OR_RETURN(auto head, engine::Engine::create(of_head, std::move(other)));
  o.lender = head.get();
  ASSIGN_OR_RETURN(auto model, engine::Engine::create(o, std::move(platform)));
  RETURN_IF_ERROR(model->set_draft(std::move(head)));
  return model;
}

struct Guess {
  std::vector<int32_t> tokens;
  std::vector<float> logits;        // of every row of the text
  std::vector<float> chain_logits;  // that each token was chosen by
};

// Both read the text anew, in one step each.
inline Guess guess(engine::Engine& model, const std::vector<int32_t>& text, int64_t most) {
  engine::Engine& head = *static_cast<engine::Engine*>(model.draft());
  const auto n = static_cast<int64_t>(text.size());
  engine::Sequence read(text), ahead(std::vector<int32_t>{text.begin() + 1, text.end()});
  Guess out;
  EXPECT_TRUE(model.reserve(read, n + most).is_ok());
  EXPECT_TRUE(head.reserve(ahead, n + most).is_ok());
  const engine::StepItem all{&read, n - 1};
  EXPECT_TRUE(model.step({&all, 1}).is_ok());
  models::SourceRows source{read.pages(), n - 1};
  for (int64_t i = 0; i < most; ++i) {
    source.leave = i + 1 < most;
    const int64_t rows = ahead.uncached();
    const engine::StepItem item{.sequence = &ahead, .count = rows, .logits = rows, .source = &source};
    const auto logits = head.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    if (i == 0) out.logits.assign(logits->begin(), logits->end());
    const auto row = logits->subspan(logits->size() - logits->size() / static_cast<size_t>(rows));
    out.chain_logits.insert(out.chain_logits.end(), row.begin(), row.end());
    auto token = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    if (!head.target_ids().empty()) token = head.target_ids()[static_cast<size_t>(token)];
    out.tokens.push_back(token);
    ahead.append(token);
  }
  model.release(read);
  head.release(ahead);
  return out;
}

}  // namespace reprise::testing_support
