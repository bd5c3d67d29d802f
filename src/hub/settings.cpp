#include "hub/settings.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/file.h"
#include "base/lower_case.h"

namespace reprise::hub {
namespace {

constexpr size_t kLongestToken = 4096;

std::string value(const Environment& get, const char* name) {
  const char* v = get(name);
  return v ? v : "";
}

bool is_true(std::string_view text) {
  const std::string s = lower_case(text);
  return s == "1" || s == "true" || s == "yes" || s == "on";
}

std::string stripped(const std::string& s) {
  const size_t first = s.find_first_not_of(" \t\r\n");
  return first == s.npos ? "" : s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}

Result<std::string> home(const Environment& get) {
  if (const std::string h = value(get, "HOME"); !h.empty()) return h;
  return error(Code::NotFound,
               "HOME is not set; set HF_HUB_CACHE (ModelScope: MODELSCOPE_CACHE) to a folder for models");
}

// "~/x" is of the home folder.
Result<std::string> expanded(const std::string& path, const Environment& get) {
  if (path != "~" && !path.starts_with("~/")) return path;
  ASSIGN_OR_RETURN(const std::string h, home(get));
  return h + path.substr(1);
}

Result<std::string> hugging_face_home(const Environment& get) {
  if (const std::string h = value(get, "HF_HOME"); !h.empty()) return expanded(h, get);
  if (const std::string x = value(get, "XDG_CACHE_HOME"); !x.empty()) {
    ASSIGN_OR_RETURN(const std::string folder, expanded(x, get));
    return folder + "/huggingface";
  }
  ASSIGN_OR_RETURN(const std::string h, home(get));
  return h + "/.cache/huggingface";
}

Result<HubKind> chosen_kind(const Environment& get) {
  const std::string said = value(get, "REPRISE_HUB");
  if (said == "huggingface") return HubKind::HuggingFace;
  if (said == "modelscope") return HubKind::ModelScope;
  if (!said.empty()) return invalid("REPRISE_HUB={}: not known; allowed: huggingface, modelscope", said);
  const bool other = is_true(value(get, "VLLM_USE_MODELSCOPE")) || is_true(value(get, "SGLANG_USE_MODELSCOPE"));
  return other ? HubKind::ModelScope : HubKind::HuggingFace;
}

Status set_endpoint(HubSettings& s, const Environment& get) {
  const bool modelscope = s.kind == HubKind::ModelScope;
  const char* variable = modelscope ? "MODELSCOPE_ENDPOINT" : "HF_ENDPOINT";
  s.endpoint = stripped(value(get, variable));
  if (s.endpoint.empty()) {
    s.endpoint = modelscope ? "https://www.modelscope.cn" : "https://huggingface.co";
    return Status::ok();
  }
  s.endpoint_from = variable;
  // As ModelScope's own tools take it.
  if (modelscope && s.endpoint.find("://") == s.endpoint.npos) s.endpoint = "https://" + s.endpoint;
  while (s.endpoint.ends_with('/')) s.endpoint.pop_back();
  const size_t scheme = s.endpoint.starts_with("https://") ? 8 : s.endpoint.starts_with("http://") ? 7 : 0;
  const bool plain = std::all_of(s.endpoint.begin(), s.endpoint.end(),
                                 [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '\\'; });
  if (scheme == 0 || scheme == s.endpoint.size() || !plain || s.endpoint.find_first_of("?#") != s.endpoint.npos)
    return invalid("{}={}: expected a URL that starts with https:// or http://", variable, s.endpoint);
  if (s.endpoint.find('@') != s.endpoint.npos)
    return invalid("{}: a URL without user and password is expected; a token goes into {}", variable,
                   s.token_variable());
  return Status::ok();
}

Status set_token(HubSettings& s, const Environment& get) {
  std::string from(s.token_variable());
  if (s.kind == HubKind::ModelScope) {
    s.token = stripped(value(get, "MODELSCOPE_API_TOKEN"));
  } else if (!is_true(value(get, "HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    s.token = stripped(value(get, "HF_TOKEN"));
    if (s.token.empty()) s.token = stripped(value(get, "HUGGING_FACE_HUB_TOKEN"));
    std::string path = value(get, "HF_TOKEN_PATH");
    if (s.token.empty() && path.empty())
      if (const auto folder = hugging_face_home(get)) path = *folder + "/token";
    if (s.token.empty() && !path.empty()) {
      ASSIGN_OR_RETURN(from, expanded(path, get));
      const auto text = read_file(from, kLongestToken);
      if (!text && text.status().code() != Code::NotFound) return text.status();
      if (text) s.token = stripped(*text);
    }
  }
  // It becomes a line of a request.
  const bool plain = std::all_of(s.token.begin(), s.token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!plain || s.token.size() > kLongestToken)
    return invalid("{}: a token is one word of letters, digits and signs; this is something else", from);
  return Status::ok();
}

}  // namespace

std::string HubSettings::endpoint_words() const {
  return endpoint_from.empty() ? endpoint : fmt::format("{} ({})", endpoint, endpoint_from);
}

Result<std::string> hub_cache(HubKind kind, const Environment& get) {
  if (kind == HubKind::ModelScope) {
    if (const std::string set = value(get, "MODELSCOPE_CACHE"); !set.empty()) return expanded(set, get);
    ASSIGN_OR_RETURN(const std::string h, home(get));
    return h + "/.cache/modelscope";
  }
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string set = value(get, name); !set.empty()) return expanded(set, get);
  ASSIGN_OR_RETURN(const std::string folder, hugging_face_home(get));
  return folder + "/hub";
}

Result<HubSettings> hub_settings(const Environment& get) {
  HubSettings s;
  ASSIGN_OR_RETURN(s.kind, chosen_kind(get));
  RETURN_IF_ERROR(set_endpoint(s, get));
  RETURN_IF_ERROR(set_token(s, get));
  ASSIGN_OR_RETURN(s.cache, hub_cache(s.kind, get));
  // The first one that is set decides, with any value.
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    const std::string said = value(get, name);
    if (is_true(said)) s.offline = fmt::format("{}={}", name, said);
    if (!said.empty()) break;
  }
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (s.certificates.empty()) s.certificates = value(get, name);
  if (const std::string said = value(get, "HF_HUB_DOWNLOAD_TIMEOUT"); !said.empty()) {
    int seconds = 0;
    const auto [end, problem] = std::from_chars(said.data(), said.data() + said.size(), seconds);
    if (problem != std::errc() || end != said.data() + said.size() || seconds < 1 || seconds > 3600)
      return invalid("HF_HUB_DOWNLOAD_TIMEOUT={}: seconds are expected; allowed: 1 to 3600", said);
    s.stall_seconds = seconds;
  }
  return s;
}

}  // namespace reprise::hub
