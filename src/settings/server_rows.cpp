#include "settings/tables.h"

#include <iterator>
#include <sstream>

namespace reprise::settings {
namespace {

// Names that SGLang has for a parser, or vLLM.
constexpr const char* kToolParsers =
    "auto none hermes qwen qwen25 llama3 llama3_json llama4_json deepseekv3 deepseekv31 deepseek_v3 deepseek_v31 "
    "mistral qwen3_coder qwen3_xml glm glm45 glm47 kimi_k2 minimax-m2 minimax_m2 seed_oss cohere_command3 "
    "cohere_command4 phi4_mini_json granite granite4 hunyuan hunyuan_a13b hy_v3 ernie45 nemotron_json "
    "llama_nemotron_json olmo3 pythonic llama4_pythonic gpt-oss openai";
constexpr const char* kReasoningParsers =
    "auto none qwen3 qwen3-thinking deepseek-r1 deepseek_r1 deepseek-v3 deepseek_v3 glm45 glm47 kimi kimi_k2 minimax "
    "minimax_m2 cohere_command3 cohere_command4 seed_oss hunyuan hunyuan_a13b hy_v3 ernie45 granite "
    "granite_thinking_parser nano_v3 nemotron_3 nemotron_v3 olmo3 mistral gpt-oss openai_gptoss";

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

}  // namespace

std::vector<Setting> server_rows() {
  return {
      text("config", "FILE",
           "settings as JSON, {\"max-running-requests\": 32}, with // comments; flags outrank them; `reprise help "
           "settings --config` prints one to begin with"),
      text("host", "ADDRESS",
           "address to listen on; 0.0.0.0: all; unix:PATH: a socket of this machine (default 127.0.0.1)", "127.0.0.1"),
      text("socket_mode", "MODE", "who may connect to a unix:PATH, in octal (default 660)", "660"),
      integer("port", {0, 65535}, "port to listen on; 0: any free one (default 30000)", "30000"),
      by_model(also("-a,--alias", text("served_model_name", "NAME",
                                       "what clients call the model; default: the last part of its path"))),
      by_model(text("chat_template", "FILE", "Jinja file, or chatml or llama-2, in place of the model's own template")),
      by_model(choice("tool_call_parser", words(kToolParsers),
                      "how the model writes tool calls; auto: as its chat template shows", "auto")),
      by_model(choice("reasoning_parser", words(kReasoningParsers),
                      "take thoughts between the family's marks, such as <think>, or in the analysis channel of "
                      "gpt-oss, out of the answer; auto: when the chat template knows them; deepseek-r1, "
                      "qwen3-thinking, minimax and olmo3: answers begin with a thought",
                      "auto")),
      secret(live(text("api_key", "KEY", "key that every route but health asks for"))),
      live(text("api_key_file", "FILE", "more such keys, one on a line; SIGHUP reads it anew")),
      live(text("api_keys_file", "FILE",
                "keys with names and limits, by their hashes; `reprise key new` writes it, SIGHUP reads it anew")),
      live(integer("max_answers_per_key", {0, kServerMost},
                   "answers (prompts times n) of one key that run or wait; 0: no bound", "0")),
      secret(live(text("admin_api_key", "KEY", "key that opens the admin routes to other machines"))),
      integer("admin_port", {0, 65535}, "serve the admin routes on this port of loopback alone"),
      text("allowed_hosts", "NAME,...",
           "hosts that requests may name beside this machine's loopback, for a proxy that passes them on; *: any "
           "(default on loopback: none, on other addresses: any)"),
      text("cors_origins", "ORIGIN,...",
           "origins whose web pages may call this server (https://chat.example); *: every page (default: none)"),
      flag("keep_attribution",
           "the block x-anthropic-billing-header of Claude Code stays in the prompt, and no prefix of it is found "
           "again; "
           "off: it is left out, and named"),
      flag("strict_fields",
           "fields of requests that are not known or not honoured are errors, where else they are warnings"),
      integer("max_queued_requests", {0, kServerMost},
              "requests that may wait; more are refused with 429 (default 2048)", "2048"),
      integer("max_queued_tokens", {0, kServerMost},
              "tokens that waiting requests may take, answers included; 0: no bound", "0"),
      integer("request_token_budget", {1, kServerMost}, "tokens that one request may take, all its answers together",
              "1048576"),
      integer("max_answers", {1, 65536}, "answers (prompts times n) of one request", "128"),
      integer("max_request_bytes", {1024, int64_t{1} << 32}, "largest body of a request", "16777216"),
      integer("max_images", {0, 1024}, "images of one request; 0: none are read", "8"),
      integer("max_image_bytes", {1, int64_t{1} << 32}, "largest file of an image, decoded from base64", "33554432"),
      integer("max_image_pixels", {1, int64_t{1} << 30}, "most pixels of an image, width times height", "64000000"),
      integer("max_video_frames", {1, 1 << 14}, "frames of a video", "768"),
      integer("max_video_pixels", {1, int64_t{1} << 40}, "most pixels of all frames of a video", "536870912"),
      text(
          "allowed_image_hosts", "NAME,...",
          "hosts whose images are fetched over https where a request names their URLs (cdn.example, or http://NAME for "
          "plain http); default: none, images come in data URLs"),
      integer("max_connections", {1, 1 << 20}, "open connections; more are closed at once", "4096"),
      text("profile_dir", "FOLDER", "folder where /stop_profile writes; without it profiles are off"),
      real("shutdown_timeout", {0, kEndless}, "seconds that requests may take to finish after SIGTERM", "30"),
      real("drain_delay", {0, kEndless},
           "seconds after SIGTERM in which requests are still taken, while /readyz says that the server ends", "0"),
      live(text("request_log", "FILE",
                "a line of JSON for every request at its end; -: standard output; text only with `log_prompts`; SIGHUP "
                "opens it anew")),
      flag("log_prompts",
           "prompts and answers stand in the request log, whose file only its owner may read; off: no text anywhere"),
      live(also("--otlp-traces-endpoint",
                text("otlp_endpoint", "URL",
                     "collector of OpenTelemetry that takes a trace of every request (http://host:4318; the path is "
                     "/v1/traces where none is given); default: none"))),
      live(
          choice("log_format", {"text", "json"}, "form of log lines, each with time and level (default text)", "text")),
      live(also("--enable-log-requests",
                flag("access_log", "a log line for every request: client, tokens, times, how it ended; never text"))),
      live(flag("log_requests", "`access_log`")),
      real("soft_watchdog_timeout", {0, kEndless}, "seconds that a step may take before it is reported; 0: any time",
           "0"),
      integer("prefill_max_requests", {1, kServerMost}, "most prompts of a step"),
      flag("disable_overlap_schedule",
           "form a batch only when the one before is done, also on devices that compute asynchronously"),
      flag("enable_priority_scheduling", "larger values of the field `priority` preempt running requests"),
      flag("disable_priority_preemption", "priorities order waiting requests alone"),
      integer("priority_scheduling_preemption_threshold", {0, kServerMost},
              "difference of priorities above which a running request is preempted (default 10)"),
      flag("schedule_low_priority_values_first", "smaller priorities go first"),
      integer("default_priority_value", {-1000000, 1000000}, "priority of requests that name none (default 0)"),
      flag("abort_on_priority_when_disabled", "accepted; priorities are never disabled"),
      choice("sampling_defaults", {"model", "openai"},
             "of fields that a request leaves out: generation_config.json, then OpenAI's; or OpenAI's alone", "model"),
      flag("check", "check the command line, print the notices, and exit"),
      flag("enable_metrics", "accepted; /metrics is always there"),
      choice("load_balance_method",
             {"auto", "round_robin", "follow_bootstrap_room", "total_requests", "total_tokens", "shortest_queue",
              "minimum_tokens"},
             "which of several replicas gets a request; auto: the one that had most of its prompt before", "auto"),
      choice("expert_metrics", {"auto", "on", "off"},
             "count rows by expert in /metrics; auto: where that needs no copy from the device", "auto"),
  };
}

}  // namespace reprise::settings
