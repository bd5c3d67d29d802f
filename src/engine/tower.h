// Tower: the vision tower of a model as a program beside those of its steps (models/vision.h), with buffers of its own.
//
// It takes one image at a time, so an image's rows do not depend on what is computed beside it. Captured once at its
// largest size where graphs read live sizes; elsewhere at sizes of which an image takes the next larger one, and eager
// above the largest. Rows of the last images are kept in host memory, by digest. The thread that drives the engine owns
// it.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
  size_t arena_bytes() const { return plan_.arena_bytes; }  // that bind() will take

  // Once the parameters are loaded. The stream outlives the tower. `warmups`: runs before each capture.
  Status bind(const ParamStore& params, Device& device, Stream& stream, int warmups);

  // Computed, or from the store of the last ones.
  Result<std::shared_ptr<const models::ImageRows>> rows(const ImageInput& image);

  GraphMode mode() const { return model_->mode(); }
  const RunCounters& counters() const { return model_->counters(); }
  uint64_t computed() const { return computed_; }  // images that were not in the store
  // Merged rows of its captures, ascending; where graphs read live sizes the largest alone.
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  Tower() = default;
  Status clear_inputs();
  Status stage(const ImageInput& image, const models::TowerLayout& layout);
  Status capture(int warmups);
  Status capture_size(int64_t size, const LiveSizes& live, int warmups);
  Result<models::ImageRows> read(const models::TowerLayout& layout);
  Result<const uint8_t*> on_host(std::string_view output, size_t bytes);
  void keep(const std::string& digest, std::shared_ptr<const models::ImageRows> rows);

  checkpoint::VisionFields vision_;
  DType dtype_ = DType::F32;
  int64_t max_rows_ = 0;
  const Platform* platform_ = nullptr;
  GraphMode wanted_ = GraphMode::Eager;
  bool required_ = false;
  std::vector<int64_t> wanted_sizes_, sizes_;
  std::vector<std::string> split_ops_;
  std::optional<Graph> graph_;  // until it is bound
  PipelineReport report_;
  KernelSelection selection_;
  MemoryPlan plan_;
  Staging staging_;
  Buffer arena_;
  Buffer read_;  // where the host reads an output that lies in memory of the device
  Stream* stream_ = nullptr;
  std::unique_ptr<CompiledModel> model_;
  std::list<std::pair<std::string, std::shared_ptr<const models::ImageRows>>> kept_;  // the last used first
  size_t kept_bytes_ = 0;
  uint64_t computed_ = 0;
};

}  // namespace reprise::engine
