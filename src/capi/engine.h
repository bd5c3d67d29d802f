// Engine: a loaded model with its scheduler, on a thread of its own or stepped by its caller, for the C functions.
//
// What is loaded belongs to the thread that loads and steps it; others reach it by the scheduler's mailbox and, for
// descriptions, by run_there(). Any thread may call everything but step(), and the destructor, which comes last.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "api/text_model.h"
#include "capi/choices.h"
#include "capi/events.h"
#include "capi/failure.h"
#include "sched/scheduler.h"
#include "server/metrics.h"
#include "server/pooled_call.h"
#include "server/served_model.h"

namespace reprise::capi {

// Each uses those above it.
struct Loaded {
  std::unique_ptr<engine::Engine> engine;
  std::optional<api::TextModel> text;
  server::ServedModel model;
  std::unique_ptr<sched::AdapterTable> adapters;  // null: the model has no slots
  std::unique_ptr<server::AnswerGrammars> grammars;
  std::unique_ptr<server::Metrics> metrics;
  std::unique_ptr<sched::Scheduler> scheduler;

  static Result<std::unique_ptr<Loaded>> open(const Choices& choices, const Hooks& hooks);
};

class Engine {
 public:
  // The hooks outlive it. An empty `on_event`: events wait for poll().
  static Result<std::unique_ptr<Engine>> open(const Values& given, Hooks& hooks, EventFunction on_event);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const server::ServedModel& model() const { return loaded_->model; }
  Failure submit(const reprise_request* request, uint64_t* id);
  void cancel(uint64_t id);
  EventQueue* queue() { return queue_.get(); }  // null: there is an event hook
  bool own_thread() const { return choices_.own_thread(); }
  Failure step(bool& worked);
  Failure generate(const reprise_request* request, std::string& text);
  // Rows for reprise_embed(), and scores for reprise_score().
  Failure embed(const std::vector<std::string>& inputs, const std::string& pooling,
                std::vector<std::vector<float>>& rows);
  Failure score(const std::string& query, const std::vector<std::string>& documents, const std::string& instruction,
                std::vector<float>& scores);
  // Waits for the step that runs.
  Failure load_adapter(const std::string& name, const std::string& path);
  Failure unload_adapter(const std::string& name);
  // "model", "settings", "graph", "memory", "counters", "metrics".
  Failure describe(const std::string& what, std::string& out);

 private:
  Engine(const Values& given, Hooks& hooks, EventFunction on_event);
  void live(std::promise<Status> opened);
  Failure add(std::shared_ptr<Answering> answering);
  // Waits, or takes steps, until `done`, which is asked under `mutex`.
  Failure wait(std::mutex& mutex, std::condition_variable& ended, const std::function<bool()>& done);
  Failure rows_of(const server::PooledCall& call, std::vector<std::vector<float>>& rows);
  void run_there(std::function<void()> what);
  void run_jobs();
  bool here() const;
  Result<std::string> text_of(const std::string& what);

  Choices choices_;
  Values given_;
  Hooks& hooks_;
  EventFunction on_event_;
  std::unique_ptr<EventQueue> queue_;
  std::unique_ptr<Loaded> loaded_;

  std::mutex live_mutex_;
  std::unordered_map<uint64_t, std::vector<sched::RequestId>> live_;
  uint64_t last_id_ = 0;

  std::mutex steps_;                       // of step(), without a thread
  std::atomic<std::thread::id> inside_{};  // the thread that steps: the engine's own, or one that is in step()
  std::mutex jobs_mutex_;
  std::condition_variable jobs_arrived_;
  std::vector<std::function<void()>> jobs_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace reprise::capi

struct reprise_settings {
  reprise::capi::Values values;
};
struct reprise_engine {
  reprise::Hooks hooks;
  std::unique_ptr<reprise::capi::Engine> engine;
};
