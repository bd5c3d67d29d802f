#include "engine/learned.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/graph_sizes.h"

namespace reprise::engine {
namespace {

constexpr int kVersion = 2, kOldestVersion = 1;  // the older one has no drafts
constexpr int64_t kMaxRows = int64_t{1} << 20;

// Lists of step times, by clock. Older files have the first one alone. Before there were runs of steps all its times
// were the host's; for a while after, those of devices with runs came from marks. Such a file still counts: times of
// either clock differ by what the host does between two steps, and new ones soon outweigh them (StepCosts).
constexpr std::array<const char*, 2> kTimes{"times", "times_by_marks"};
constexpr const char* times_by(StepClock clock) { return kTimes[static_cast<size_t>(clock)]; }

OrderedJson time_json(const LearnedPhase::Time& t) {
  return {t.kind == StepKind::Replay ? "replay" : "eager", t.rows, t.entry.microseconds, t.entry.count};
}

OrderedJson phase_json(const StepRunner& runner, const LearnedPhase& before) {
  OrderedJson times = OrderedJson::array(), others = OrderedJson::array(), traffic = OrderedJson::array();
  for (const StepKind kind : {StepKind::Replay, StepKind::Eager}) {
    const auto& entries = runner.costs().entries(kind);
    for (size_t rows = 1; rows < entries.size(); ++rows)
      if (entries[rows].count) times.push_back(time_json({kind, static_cast<int64_t>(rows), entries[rows]}));
  }
  const StepClock other = runner.clock() == StepClock::Host ? StepClock::Marks : StepClock::Host;
  for (const LearnedPhase::Time& t : before.times)
    if (t.clock == other) others.push_back(time_json(t));
  const auto counts = runner.traffic().counts();
  for (size_t rows = 1; rows < counts.size(); ++rows)
    if (counts[rows]) traffic.push_back({rows, counts[rows]});
  return {{times_by(runner.clock()), times}, {times_by(other), others}, {"traffic", traffic}};
}

bool rows_ok(const Json& j) { return j.is_number_integer() && j.get<int64_t>() >= 1 && j.get<int64_t>() <= kMaxRows; }

Status read_phase(const Json& file, const std::string& name, LearnedPhase& out) {
  const auto phase = file.find(name);
  if (phase == file.end() || !phase->is_object()) return invalid("{} is missing", name);
  for (const char* list : {"times", "traffic"})
    if (!phase->contains(list) || !(*phase)[list].is_array()) return invalid("{}.{} is not a list", name, list);
  for (const StepClock clock : {StepClock::Host, StepClock::Marks}) {
    const auto times = phase->find(times_by(clock));
    if (times == phase->end()) continue;
    if (!times->is_array()) return invalid("{}.{} is not a list", name, times_by(clock));
    for (const Json& t : *times) {
      const bool ok = t.is_array() && t.size() == 4 && t[0].is_string() && rows_ok(t[1]) && t[2].is_number() &&
                      t[2].get<double>() >= 0 && t[3].is_number_unsigned();
      if (!ok) return invalid("{}.{} holds {}", name, times_by(clock), t.dump());
      out.times.push_back({t[0] == "eager" ? StepKind::Eager : StepKind::Replay,
                           t[1].get<int64_t>(),
                           {t[2].get<double>(), t[3].get<uint32_t>()},
                           clock});
    }
  }
  for (const Json& t : (*phase)["traffic"]) {
    if (!t.is_array() || t.size() != 2 || !rows_ok(t[0]) || !t[1].is_number_unsigned())
      return invalid("{}.traffic holds {}", name, t.dump());
    out.traffic.emplace_back(t[0].get<int64_t>(), t[1].get<uint64_t>());
  }
  return Status::ok();
}

OrderedJson drafts_json(const DraftRecord& drafts) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [by, places] : drafts.all()) {
    OrderedJson list = OrderedJson::array();
    for (const DraftRecord::Place& p : places) list.push_back({p.verified, p.accepted});
    out[by] = std::move(list);
  }
  return out;
}

// A later draft of a step was verified, and came true, no more often than the one before it.
Status read_drafts(const Json& file, DraftRecord& out) {
  const auto kinds = file.find("drafts");
  if (kinds == file.end() || !kinds->is_object() || kinds->size() > DraftRecord::kMostKinds)
    return invalid("drafts is no object of up to {} kinds", DraftRecord::kMostKinds);
  for (const auto& [by, places] : kinds->items()) {
    if (by.empty() || by.size() > 32 || !places.is_array() || places.size() > DraftRecord::kMostPlaces)
      return invalid("drafts.{} is no list of up to {} places", by.substr(0, 32), DraftRecord::kMostPlaces);
    std::vector<int64_t> verified, accepted;
    int64_t most_verified = DraftRecord::kMany, most_accepted = DraftRecord::kMany;
    for (const Json& p : places) {
      bool ok = p.is_array() && p.size() == 2 && p[0].is_number_unsigned() && p[1].is_number_unsigned();
      ok = ok && p[0].get<uint64_t>() <= static_cast<uint64_t>(most_verified) &&
           p[1].get<uint64_t>() <= std::min<uint64_t>(static_cast<uint64_t>(most_accepted), p[0].get<uint64_t>());
      if (!ok) return invalid("drafts.{} holds {}", by, p.dump());
      verified.push_back(most_verified = p[0].get<int64_t>());
      accepted.push_back(most_accepted = p[1].get<int64_t>());
    }
    out.add(by, verified, accepted);
  }
  return Status::ok();
}

}  // namespace

void DraftRecord::add(std::string_view by, std::span<const int64_t> verified, std::span<const int64_t> accepted) {
  auto known = all_.find(by);
  if (known == all_.end()) {
    if (all_.size() >= kMostKinds || verified.empty()) return;
    known = all_.emplace(by, std::vector<Place>()).first;
  }
  std::vector<Place>& places = known->second;
  const size_t count = std::min({verified.size(), accepted.size(), kMostPlaces});
  places.resize(std::max(places.size(), count));
  for (size_t i = 0; i < count; ++i) {
    places[i].verified += verified[i];
    places[i].accepted += accepted[i];
  }
  while (!places.empty() && places[0].verified > kMany)
    for (Place& p : places) p.verified /= 2, p.accepted /= 2;
}

Result<Learned> load_learned(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return error(Code::NotFound, "{} does not exist yet", path);
  ASSIGN_OR_RETURN(const std::string text, read_file(path, size_t{16} << 20));
  ASSIGN_OR_RETURN(const Json file, parse_json(text, path));
  const auto version = file.is_object() ? file.find("version") : file.end();
  const auto number = version != file.end() && version->is_number_integer() ? version->get<int64_t>() : 0;
  if (number < kOldestVersion || number > kVersion)
    return invalid("{}: not a file of learned step times, version {} to {}", path, kOldestVersion, kVersion);
  Learned out;
  for (const PhaseSpec& phase : kPhases)
    if (const std::string name(phase.name); !phase.drafts || file.contains(name))
      RETURN_IF_ERROR(read_phase(file, name, out.phases[static_cast<size_t>(&phase - kPhases)]).at(path));
  if (number == kVersion) RETURN_IF_ERROR(read_drafts(file, out.drafts).at(path));
  return out;
}

Status save_learned(const std::string& path, const Runners& runners, const DraftRecord& drafts) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failed;
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  if (failed) return invalid("{}: {}", folder.string(), failed.message());
  const auto before = load_learned(path);
  OrderedJson file{{"version", kVersion}};
  for (size_t p = 0; p < kPhaseCount && runners[p]; ++p)
    file[std::string(kPhases[p].name)] = phase_json(*runners[p], before.is_ok() ? before->phases[p] : LearnedPhase());
  file["drafts"] = drafts_json(drafts);
  return write_file_atomically(path, file.dump() + "\n");
}

void restore(const Learned& learned, const Runners& runners) {
  for (size_t p = 0; p < kPhaseCount && runners[p]; ++p) {
    for (const auto& t : learned.phases[p].times)
      if (t.clock == runners[p]->clock()) runners[p]->costs().restore(t.kind, t.rows, t.entry);
    for (auto [rows, batches] : learned.phases[p].traffic) runners[p]->traffic().add(rows, batches);
  }
}

std::string learned_file(const EngineOptions& o, const models::ModelConfig& config, const models::ModelSpec& spec,
                         Device& device) {
  const DeviceInfo& info = device.info();
  const std::string streams = o.graph.choose_streams         ? "-streams-auto"
                              : o.graph.pipeline.streams > 1 ? fmt::format("-streams{}", o.graph.pipeline.streams)
                                                             : "";
  return fmt::format("{}/{}{}-{}x{}-{}-{}-{}-{}{}{}.json", o.graph.learned_dir, config.fields.architecture,
                     spec.source_width ? "-head" : "", config.fields.num_hidden_layers, config.fields.hidden_size,
                     dtype_name(*o.dtype), device_kind_name(info.kind), info.isa, info.threads,
                     device.clock_us() ? "-modelled" : "", streams);
}

void use_learned_sizes(EngineOptions& options, const std::string& file) {
  GraphOptions& g = options.graph;
  const auto learned = load_learned(file);
  if (!learned.is_ok() && learned.status().code() != Code::NotFound)
    log::warning("{}; learned sizes are not used", learned.status().message());
  auto learn = [&](const LearnedPhase& phase, std::string_view name, int64_t largest, size_t count) {
    TrafficHistogram traffic(largest);
    for (auto& entry : phase.traffic) traffic.add(std::min(entry.first, largest), entry.second);
    constexpr uint64_t kEnough = 100;
    if (traffic.total() < kEnough) {
      log::info("{} sizes: by rule, {} of {} steps seen so far to learn from", name, traffic.total(), kEnough);
      return std::vector<int64_t>();
    }
    auto sizes = learn_sizes(traffic.counts(), static_cast<int64_t>(count), largest);
    log::info("{} sizes: learned from {} steps: {}", name, traffic.total(), fmt::join(sizes, ","));
    return sizes;
  };
  for (size_t p = 0; p < kPhaseCount; ++p) {
    const PhaseSpec& phase = kPhases[p];
    if (phase.drafts || !(g.*phase.learn)) continue;
    const int64_t largest = phase.largest(options.max_running_requests, options.chunked_prefill_size);
    g.*phase.sizes = learn(learned.is_ok() ? learned->phases[p] : LearnedPhase(), phase.name, largest,
                           phase.sizes_by_rule(largest, SizeRule::Padded).size());
  }
}

}  // namespace reprise::engine
