#include "engine/tower.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/log.h"
#include "engine/graph_sizes.h"

namespace reprise::engine {
namespace {

constexpr size_t kKeptBytes = size_t{256} << 20;  // of rows of the last images

void write_number(DType dtype, void* out, size_t i, float x) {
  if (dtype == DType::F32) static_cast<float*>(out)[i] = x;
  if (dtype == DType::BF16) static_cast<uint16_t*>(out)[i] = float_to_bf16(x);
  if (dtype == DType::F16) static_cast<uint16_t*>(out)[i] = float_to_half(x);
}

LiveSizes tower_sizes(int64_t rows, int64_t windows) {
  LiveSizes live;
  live.value[models::kMergedRows] = rows;
  live.value[models::kImageCuSeqlens] = 2;
  live.value[models::kWindowCuSeqlens] = windows + 1;
  return live;
}

// Where graphs freeze sizes: 64, 128, 256 and so on, so that an image is padded to less than twice its rows, and a
// tower of many pieces leaves room on the device for the text model's captures.
std::vector<int64_t> sizes_by_rule(int64_t largest) {
  std::vector<int64_t> sizes;
  for (int64_t size = 64; size < largest; size *= 2) sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

// Those that the user gave for steps with prompts, as far as the tower takes them.
std::vector<int64_t> sizes_of(const GraphOptions& options, int64_t largest) {
  std::vector<int64_t> sizes = options.prefill_sizes;
  std::erase_if(sizes, [&](int64_t size) { return size > largest; });
  return sizes.empty() ? sizes_by_rule(largest) : sizes;
}

template <typename T>
Status write_all(const Staging& staging, const std::string& name, const std::vector<T>& from) {
  ASSIGN_OR_RETURN(const TensorView view, staging.input(name));
  std::memcpy(view.data, from.data(), from.size() * sizeof(T));
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Tower>> Tower::prepare(const models::ModelConfig& config, DType dtype, int64_t max_rows,
                                              const Platform& platform, const GraphOptions& options) {
  std::unique_ptr<Tower> t(new Tower);
  t->vision_ = *config.fields.vision;
  t->dtype_ = dtype;
  t->max_rows_ = max_rows;
  t->platform_ = &platform;
  t->wanted_ = options.policy == GraphPolicy::Off ? GraphMode::Eager : options.prefill;
  t->required_ = options.policy == GraphPolicy::Required;
  t->split_ops_ = options.split_ops;
  t->wanted_sizes_ = platform.device->info().live_sizes ? std::vector<int64_t>{max_rows} : sizes_of(options, max_rows);
  ASSIGN_OR_RETURN(t->graph_, models::trace_tower(config, dtype, max_rows, *platform.ops));
  PipelineOptions pipeline = options.pipeline;
  pipeline.streams = 1;
  pipeline.prefetch_bytes = 0;
  pipeline.greedy = pipeline.expand_latents = pipeline.observe_experts = false;
  pipeline.lora = {};
  pipeline.ranks = {};  // one of them has the tower, whole
  // Linears of the tower are floats, unless the files say otherwise.
  if (pipeline.quantisation) {
    auto quantisation = std::make_shared<checkpoint::QuantPlan>(*pipeline.quantisation);
    quantisation->others = {};
    pipeline.quantisation = std::move(quantisation);
  }
  pipeline.passes.print_after.clear();
  pipeline.passes.dump_dir.clear();
  pipeline.passes.keep_graphs = false;
  ASSIGN_OR_RETURN(t->report_, run_pipeline(*t->graph_, pipeline, platform));
  ASSIGN_OR_RETURN(t->selection_, select_kernels(*t->graph_, platform));
  t->plan_ = plan_memory(*t->graph_, t->selection_.workspace);
  return t;
}

Status Tower::bind(const ParamStore& params, Device& device, Stream& stream, int warmups) {
  stream_ = &stream;
  staging_.declare(*graph_, {});
  const bool written = device.info().host_visible && !device.info().asynchronous;
  RETURN_IF_ERROR(written ? staging_.allocate_alone(device) : staging_.allocate(device, 1));
  ASSIGN_OR_RETURN(arena_, device.pool().allocate(plan_.arena_bytes, "activations of the vision tower"));
  if (!device.info().host_visible) {
    const size_t bytes = static_cast<size_t>(max_rows_ * vision_.out_hidden) * size_of(dtype_);
    ASSIGN_OR_RETURN(read_, device.host_pool().allocate(bytes, "rows of images"));
  }
  CompileRequest request;
  request.platform = platform_;
  request.params = &params;
  request.staging = &staging_;
  request.arena = arena_.data();
  request.split_ops = split_ops_;
  request.size_symbols = {models::kMergedRows};
  ASSIGN_OR_RETURN(model_, CompiledModel::compile(std::move(*graph_), selection_, std::move(plan_), request));
  RETURN_IF_ERROR(clear_inputs());
  return wanted_ == GraphMode::Eager ? Status::ok() : capture(warmups);
}

// Padding rows read what lies there: indices must be sound from the start. The rest is of the smallest image.
Status Tower::clear_inputs() {
  const auto clear = [&](std::string_view name) {
    ASSIGN_OR_RETURN(const TensorView view, staging_.input(name));
    std::memset(view.data, 0, static_cast<size_t>(view.elements()) * size_of(view.dtype));
    return Status::ok();
  };
  for (const std::string_view name : {models::kPatchesInput, models::kPlacesInput}) RETURN_IF_ERROR(clear(name));
  for (size_t k = 0; vision_.side > 0 && k < models::TowerLayout{}.taps.size(); ++k)
    for (const char* input : {"tap", "tap_weight"}) RETURN_IF_ERROR(clear(fmt::format("{}.{}", input, k)));
  return stage({{},
                vision_.merge,
                vision_.merge,
                std::vector<float>(static_cast<size_t>(vision_.block() * vision_.patch_width()))},
               models::tower_layout(vision_, vision_.merge, vision_.merge));
}

Status Tower::capture_size(int64_t size, const LiveSizes& live, int warmups) {
  for (int i = 0; i < warmups; ++i) RETURN_IF_ERROR(model_->run(live, *stream_));
  return model_->capture(size, live);
}

// The largest size first: it needs the most of the device. Sizes that have no room run eagerly.
Status Tower::capture(int warmups) {
  model_->cut(wanted_);
  const bool live_sizes = model_->device().info().live_sizes;
  for (auto size = wanted_sizes_.rbegin(); size != wanted_sizes_.rend(); ++size) {
    // A capture that serves every size is taken at one that is quickly run. Else every row may be a window of its own.
    const Status captured = capture_size(*size, live_sizes ? tower_sizes(1, 1) : tower_sizes(*size, *size), warmups);
    if (captured.is_ok()) {
      sizes_.insert(sizes_.begin(), *size);
      continue;
    }
    if (required_) return captured.at("`graph` required: capture of the vision tower failed");
    log::warning("vision tower: {} rows: {}; they run eager", *size, captured.message());
  }
  if (sizes_.empty()) model_->cut(GraphMode::Eager);
  return Status::ok();
}

Status Tower::stage(const ImageInput& image, const models::TowerLayout& layout) {
  ASSIGN_OR_RETURN(const TensorView patches, staging_.input(std::string(models::kPatchesInput)));
  const auto width = static_cast<size_t>(vision_.patch_width());
  for (size_t i = 0; i < layout.order.size(); ++i) {
    const float* from = image.patches.data() + static_cast<size_t>(layout.order[i]) * width;
    for (size_t k = 0; k < width; ++k) write_number(dtype_, patches.data, i * width + k, from[k]);
  }
  staging_.use(models::kPatchesInput, static_cast<int64_t>(layout.order.size() * width));
  RETURN_IF_ERROR(write_all(staging_, std::string(models::kPlacesInput), layout.places));
  RETURN_IF_ERROR(write_all(staging_, std::string(models::kImageCuSeqlensInput),
                            std::vector<int32_t>{0, static_cast<int32_t>(layout.order.size())}));
  if (vision_.window > 0) {
    // Windows that a capture has and the image has not are empty.
    ASSIGN_OR_RETURN(const TensorView windows, staging_.input(models::kWindowCuSeqlensInput));
    const auto borders = models::ints(windows);
    std::fill(std::copy(layout.windows.begin(), layout.windows.end(), borders.begin()), borders.end(),
              layout.windows.back());
  }
  for (size_t k = 0; k < layout.taps.size() && vision_.side > 0; ++k) {
    RETURN_IF_ERROR(write_all(staging_, fmt::format("tap.{}", k), layout.taps[k]));
    RETURN_IF_ERROR(write_all(staging_, fmt::format("tap_weight.{}", k), layout.weights[k]));
  }
  return Status::ok();
}

Result<const uint8_t*> Tower::on_host(std::string_view output, size_t bytes) {
  ASSIGN_OR_RETURN(const TensorView view, model_->output(output));
  if (!read_) return static_cast<const uint8_t*>(view.data);
  RETURN_IF_ERROR(stream_->copy(read_.data(), view.data, bytes, Copy::DeviceToHost));
  RETURN_IF_ERROR(stream_->synchronize());
  return static_cast<const uint8_t*>(read_.as<uint8_t>());
}

Result<models::ImageRows> Tower::read(const models::TowerLayout& layout) {
  models::ImageRows out;
  out.row_bytes = static_cast<size_t>(vision_.out_hidden) * size_of(dtype_);
  const auto take = [&](std::string_view name, std::vector<uint8_t>& to) {
    to.resize(layout.row_of.size() * out.row_bytes);
    ASSIGN_OR_RETURN(const uint8_t* from, on_host(name, to.size()));
    for (size_t i = 0; i < layout.row_of.size(); ++i)
      std::memcpy(to.data() + i * out.row_bytes, from + static_cast<size_t>(layout.row_of[i]) * out.row_bytes,
                  out.row_bytes);
    return Status::ok();
  };
  RETURN_IF_ERROR(take("rows", out.rows));
  out.deep.resize(vision_.deepstack_blocks.size());
  for (size_t k = 0; k < out.deep.size(); ++k) RETURN_IF_ERROR(take(fmt::format("deep.{}", k), out.deep[k]));
  return out;
}

void Tower::keep(const std::string& digest, std::shared_ptr<const models::ImageRows> rows) {
  kept_bytes_ += rows->bytes();
  kept_.emplace_front(digest, std::move(rows));
  while (kept_bytes_ > kKeptBytes && kept_.size() > 1) {
    kept_bytes_ -= kept_.back().second->bytes();
    kept_.pop_back();
  }
}

Result<std::shared_ptr<const models::ImageRows>> Tower::rows(const ImageInput& image) {
  const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const auto& k) { return k.first == image.digest; });
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return kept_.front().second;
  }
  const int64_t m = vision_.merge, count = image.rows / m * (image.columns / m);
  if (image.rows < m || image.columns < m || image.rows % m != 0 || image.columns % m != 0 ||
      static_cast<int64_t>(image.patches.size()) != image.rows * image.columns * vision_.patch_width())
    return invalid(
        "an image of {} x {} patches with {} numbers; allowed: sides that are multiples of {}, {} numbers a "
        "patch",
        image.columns, image.rows, image.patches.size(), m, vision_.patch_width());
  if (count > max_rows_) return invalid("an image of {} tokens; allowed: {}", count, max_rows_);
  const models::TowerLayout layout = models::tower_layout(vision_, image.rows, image.columns);
  RETURN_IF_ERROR(stage(image, layout));
  const LiveSizes live =
      tower_sizes(count, layout.windows.empty() ? 0 : static_cast<int64_t>(layout.windows.size()) - 1);
  const auto size = choose_size(sizes_, count);
  if (!size && required_)
    return invalid("`graph` required: an image of {} tokens, and the vision tower is captured for at most {}", count,
                   sizes_.empty() ? 0 : sizes_.back());
  RETURN_IF_ERROR(size ? model_->replay(*size, live, *stream_) : model_->launch(live, *stream_));
  RETURN_IF_ERROR(stream_->synchronize());
  ASSIGN_OR_RETURN(models::ImageRows made, read(layout));
  ++computed_;
  auto rows = std::make_shared<const models::ImageRows>(std::move(made));
  if (!image.digest.empty()) keep(image.digest, rows);
  return rows;
}

}  // namespace reprise::engine
