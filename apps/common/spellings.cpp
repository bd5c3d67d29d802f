#include "common/spellings.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace reprise::apps {
namespace {

constexpr std::pair<std::string_view, std::string_view> kShort[] = {
    {"-np", "--parallel"},      {"-ngl", "--n-gpu-layers"}, {"-hf", "--hf-repo"},       {"-hfr", "--hf-repo"},
    {"-fa", "--flash-attn"},    {"-cb", "--cont-batching"}, {"-cnv", "--conversation"}, {"-sys", "--system-prompt"},
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-tp", "--tp-size"},       {"-dp", "--dp-size"},
    {"-pp", "--pp-size"},       {"-md", "--model-draft"},   {"-sm", "--split-mode"},    {"-ts", "--tensor-split"},
};

}  // namespace

std::vector<std::string> plain_words(int argc, const char* const* argv) {
  std::vector<std::string> out(argv, argv + argc);
  for (std::string& word : out)
    for (const auto& [from, to] : kShort)
      if (word == from) word = to;
  // help, help serve, help graph explain --help-all; the table of settings and manual pages are what `help` does itself
  const bool page =
      out.size() >= 3 && (out[2] == "settings" || std::find(out.begin(), out.end(), "--man") != out.end());
  if (out.size() >= 2 && out[1] == "help" && !page) {
    out.erase(out.begin() + 1);
    if (std::find(out.begin(), out.end(), "--help-all") == out.end()) out.emplace_back("--help");
  }
  return out;
}

}  // namespace reprise::apps
