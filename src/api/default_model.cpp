#include "api/default_model.h"

#include <cstdlib>

namespace reprise::api {

Result<std::string> cache_folder() {
  if (const char* set = std::getenv("REPRISE_CACHE"); set && *set) return std::string(set);
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/reprise";
  return error(Code::NotFound, "neither REPRISE_CACHE nor HOME is set; set REPRISE_CACHE to a folder for models");
}

Result<std::string> default_model_file() {
  ASSIGN_OR_RETURN(std::string folder, cache_folder());
  return fmt::format("{}/{}/{}", folder, kDefaultModelName, kDefaultModelFile);
}

Result<std::string> minilm_folder() {
  ASSIGN_OR_RETURN(std::string folder, cache_folder());
  return fmt::format("{}/{}", folder, kMinilmName);
}

}  // namespace reprise::api
