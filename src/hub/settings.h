// HubSettings: which hub models come from, where they are kept, and with which token, as the environment says it in the
// words of huggingface_hub, ModelScope, vLLM and SGLang. A plain value, made once for a command.
//
// - the hub: REPRISE_HUB, huggingface (default) or modelscope; VLLM_USE_MODELSCOPE and SGLANG_USE_MODELSCOPE, too
// - its address: HF_ENDPOINT (https://huggingface.co), MODELSCOPE_ENDPOINT (https://www.modelscope.cn)
// - the token: HF_TOKEN, HF_TOKEN_PATH or the file $HF_HOME/token; MODELSCOPE_API_TOKEN
// - the folder: HF_HUB_CACHE, HF_HOME (~/.cache/huggingface/hub); MODELSCOPE_CACHE (~/.cache/modelscope)
// - no network: HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
// - seconds without a byte after which a transfer is begun anew: HF_HUB_DOWNLOAD_TIMEOUT
// - certificates in place of the system's: CURL_CA_BUNDLE, SSL_CERT_FILE
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/status.h"

namespace reprise::hub {

enum class HubKind : uint8_t { HuggingFace, ModelScope };

struct HubSettings {
  HubKind kind = HubKind::HuggingFace;
  std::string endpoint;       // without a slash at its end
  std::string endpoint_from;  // the variable that names it, "" by default
  std::string token;          // "": none
  std::string cache;          // the folder
  std::string offline;        // "HF_HUB_OFFLINE=1": the variable that forbids the network; "": nothing does
  std::string certificates;   // a file; "": the system's
  int stall_seconds = 30;
  // No variable: how long the first of several waits is, and the tries in a row that bring no byte.
  std::chrono::milliseconds first_wait{1000};
  int tries = 5;

  // "https://huggingface.co", or "https://mirror (HF_ENDPOINT)"
  std::string endpoint_words() const;
  std::string_view default_revision() const { return kind == HubKind::ModelScope ? "master" : "main"; }
  // The variable that holds a token.
  std::string_view token_variable() const { return kind == HubKind::ModelScope ? "MODELSCOPE_API_TOKEN" : "HF_TOKEN"; }
};

// Like getenv().
using Environment = std::function<const char*(const char*)>;

Result<HubSettings> hub_settings(const Environment& get);
// Where each hub's tools keep their models, whichever is in use.
Result<std::string> hub_cache(HubKind kind, const Environment& get);

}  // namespace reprise::hub
