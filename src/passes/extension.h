// Extension: a shared object with ops, kernels and rewrites, loaded into a platform without rebuilding anything.
//
// load_extension() checks it, runs it once and adds what it brings to the platform's registries; the pipeline finds its
// rewrites there. The platform owns it, and with it the loaded library, until its own end. What authors write against
// is extension_api.h. Immutable after loading.
#pragma once

#include <string>
#include <vector>

#include "nn/fused.h"
#include "ops/platform.h"
#include "passes/rewrite.h"

namespace reprise {

class Extension {
 public:
  ~Extension();
  Extension(const Extension&) = delete;
  Extension& operator=(const Extension&) = delete;

  const std::string& path() const { return path_; }
  // Everything it declared, as it was written.
  const std::string& text() const { return text_; }
  const std::vector<nn::FusedOp>& ops() const { return ops_; }
  // Besides those from its ops' meanings.
  const std::vector<Rewrite>& rewrites() const { return rewrites_; }

 private:
  friend class ExtensionLoader;
  Extension(std::string path, void* library) : path_(std::move(path)), library_(library) {}

  std::string path_;
  void* library_;  // of dlopen
  std::string text_;
  std::vector<nn::FusedOp> ops_;
  std::vector<Rewrite> rewrites_;
};

// Call before the platform is used. The error names the file and what is wrong with it; the platform may then hold a
// part of what the extension brings, and is not to be used.
Status load_extension(const std::string& path, Platform& platform);

}  // namespace reprise
