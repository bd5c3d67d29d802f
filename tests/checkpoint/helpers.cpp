#include "checkpoint/helpers.h"

#include <cstdlib>
#include <filesystem>

namespace reprise::checkpoint {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "checkpoint_test_XXXXXX").string();
  path = ::mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ec;
  std::filesystem::remove_all(path, ec);
}

}  // namespace reprise::checkpoint
