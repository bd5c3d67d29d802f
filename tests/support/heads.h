// Heads that draft from hidden states, on the tiny checkpoints of tests/data/heads (tools/golden/make_draft_heads.py):
// a model that keeps rows, its head joined to it, and what the head guesses when it reads a text anew.
#pragma once

#include <cstdlib>

#include "models/draft_head.h"
#include "support/tiny_models.h"

namespace reprise::testing_support {

struct HeadSetup {
  // Folders, of tests/data/heads or whole paths; the same one for a layer of the checkpoint, and no head for a model
  // that keeps nothing.
  std::string model = {}, head = {};
  DType dtype = DType::F32;
  std::optional<engine::GraphPolicy> policy = {};
  std::optional<GraphMode> decode = {}, prefill = {};
  int64_t pages = 40, chunk = 256, rows = 32, context = 256;
  DeviceKind device = DeviceKind::Cpu;              // Ascend: the simulator
  const CudaStandIn* cuda = nullptr;                // in place of a GPU
  std::shared_ptr<ranks::Member> member = nullptr;  // of a world of several ranks
  int64_t parts = 1, ep_size = 1;                   // those share out sequences, and experts
  bool dispatch = false;                            // they send rows to the ranks of their experts
  int64_t verify_replay = 0;                        // of the model
  std::string fault = {};                           // likewise
};

inline std::string head_path(const std::string& name) {
  return name.starts_with('/') ? name : std::string(REPRISE_SOURCE_DIR) + "/tests/data/heads/" + name;
}

inline Result<std::unique_ptr<engine::Engine>> open_with_head(const HeadSetup& s) {
  setenv("ASCEND_SIM_RACES", "1", 0);  // work on the same memory that nothing orders is an error
  DeviceOptions device;
  device.threads = s.member ? 1 : 2;
  device.member = s.member;
  device.pin_threads = false;
  device.kind = s.device;
  device.ascend_runtime = "sim";
  device.cuda_stand_in = s.cuda;
  device.dispatch = s.dispatch;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  device.shared = platform.device;
  ASSIGN_OR_RETURN(Platform other, make_platform(device));
  engine::EngineOptions o;
  o.member = s.member;
  o.sequence_parts = s.parts;
  o.ep_size = s.ep_size;
  o.dispatch = s.dispatch;
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
  o.graph.verify_replay = s.verify_replay;
  o.graph.report_dir = testing::TempDir();
  if (!s.fault.empty()) {
    ASSIGN_OR_RETURN(const engine::Fault fault, engine::parse_fault(s.fault));
    o.graph.faults = {fault};
  }
  if (s.head == s.model) {
    of_head.prediction = true;
  } else {
    const bool three = s.head.ends_with("eagle3");
    of_head.families = {three ? &models::eagle::kEagle3 : &models::eagle::kEagle};
    of_head.borrows_from = o.model_path;
    of_head.ep_size = 1;
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

// A text that a model has read and holds, in one part of its world.
class HeldText {
 public:
  HeldText(engine::Engine& model, std::vector<int32_t> text, int64_t most, int part = 0)
      : model_(model), text_(std::move(text)), read_(text_), most_(most), part_(part) {
    const auto n = static_cast<int64_t>(text_.size());
    EXPECT_TRUE(model_.reserve(read_, n + most_, part_).is_ok());
    engine::StepItem all{&read_, n - 1};
    all.part = part_;
    EXPECT_TRUE(model_.step({&all, 1}).is_ok());
  }
  ~HeldText() { model_.release(read_, part_); }
  HeldText(const HeldText&) = delete;
  HeldText& operator=(const HeldText&) = delete;

  // The head reads the text anew, in one step.
  Guess guess() {
    engine::Engine& head = *static_cast<engine::Engine*>(model_.draft());
    engine::Sequence ahead(std::vector<int32_t>{text_.begin() + 1, text_.end()});
    Guess out;
    EXPECT_TRUE(head.reserve(ahead, static_cast<int64_t>(text_.size()) + most_, part_).is_ok());
    models::SourceRows source{read_.pages(), static_cast<int64_t>(text_.size()) - 1};
    for (int64_t i = 0; i < most_; ++i) {
      source.leave = i + 1 < most_;
      const int64_t rows = ahead.uncached();
      engine::StepItem item{.sequence = &ahead, .count = rows, .logits = rows, .source = &source};
      item.part = part_;
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
    head.release(ahead, part_);
    return out;
  }

 private:
  engine::Engine& model_;
  std::vector<int32_t> text_;
  engine::Sequence read_;
  int64_t most_;
  int part_;
};

// Both read the text anew, in one step each.
inline Guess guess(engine::Engine& model, const std::vector<int32_t>& text, int64_t most) {
  return HeldText(model, text, most).guess();
}

}  // namespace reprise::testing_support
