// Packed weights on disk: the parameters of a model as its kernels want them, so that the next start reads one file
// straight into place instead of converting and packing the checkpoint.
//
// One file per model and layout, addressed by the content of the checkpoint's files (content_hash.h) and their paths,
// every parameter's type and layout, the instruction set and the build. Every 16 MB carry a checksum.
// A file that does not fit is a miss: the checkpoint is read, and the file replaced. Plain functions.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "compile/param_store.h"
#include "compile/plan_key.h"
#include "weights/loader.h"

namespace reprise::weights {

struct WeightCacheOptions {
  std::string folder;  // "": no cache
  std::string isa;     // DeviceInfo::isa
  bool host_visible = true;
};

// Where this model's weights would lie.
Result<std::string> weight_cache_file(const checkpoint::Checkpoint& checkpoint, const ParamStore& params,
                                      const LoadOptions& load, const WeightCacheOptions& cache);

// As load_params(), from the cache where it can, into the cache where it could not. Only the checkpoint's own errors
// are errors.
Status load_params_cached(const checkpoint::Checkpoint& checkpoint, ParamStore& params, const LoadOptions& load,
                          const WeightCacheOptions& cache);

}  // namespace reprise::weights
