// Tower: the vision tower of a model as a program beside those of its steps (models/vision.h), with buffers of its own.
//
// It takes one image at a time, so an image's rows do not depend on what is computed beside it. Captured once at its
// largest size, on devices whose graphs read live sizes. Rows of the last images are kept, by digest. The thread that
// drives the engine owns it.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph_options.h"
#include "engine/image.h"
#include "models/placed_image.h"
#include "models/vision.h"

namespace reprise::engine {

class Tower {
 public:
  // Traced, rewritten and planned, for images of up to `max_rows` merged rows.
  static Result<std::unique_ptr<Tower>> prepare(const models::ModelConfig& config, DType dtype, int64_t max_rows,
                                                const Platform& platform, const GraphOptions& options);

  const std::vector<ParamPlan>& params() const { return selection_.params; }
  const std::vector<DerivedParam>& derived() const { return report_.derived; }
  int64_t max_rows() const { return max_rows_; }

  // Once the parameters are loaded. The stream outlives the tower.
  Status bind(const ParamStore& params, Device& device, Stream& stream);

  // Computed, or from the store of the last ones.
  Result<std::shared_ptr<const models::ImageRows>> rows(const ImageInput& image);

  GraphMode mode() const { return model_->mode(); }
  const RunCounters& counters() const { return model_->counters(); }
  uint64_t computed() const { return computed_; }  // images that were not in the store

 private:
  Tower() = default;
  Status stage(const ImageInput& image, const models::TowerLayout& layout);
  Result<models::ImageRows> read(const models::TowerLayout& layout) const;
  void keep(const std::string& digest, std::shared_ptr<const models::ImageRows> rows);

  checkpoint::VisionFields vision_;
  DType dtype_ = DType::F32;
  int64_t max_rows_ = 0;
  const Platform* platform_ = nullptr;
  GraphMode wanted_ = GraphMode::Eager;
  bool required_ = false, captured_ = false;
  std::vector<std::string> split_ops_;
  std::optional<Graph> graph_;  // until it is bound
  PipelineReport report_;
  KernelSelection selection_;
  MemoryPlan plan_;
  Staging staging_;
  Buffer arena_;
  Stream* stream_ = nullptr;
  std::unique_ptr<CompiledModel> model_;
  std::list<std::pair<std::string, std::shared_ptr<const models::ImageRows>>> kept_;  // the last used first
  size_t kept_bytes_ = 0;
  uint64_t computed_ = 0;
};

}  // namespace reprise::engine
