// `reprise graph profile`: where the time of one step goes, thread by thread, as it really runs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/profile_flags.h"
#include "measurement/device_probe.h"
#include "measurement/machine_probe.h"
#include "service/local_ranks.h"
#include "settings/values.h"

namespace reprise::apps {

using namespace see;
namespace {

struct GraphProfileFlags {
  ModelFlags model;
  ProfileOptions profile;
  std::string output, rank = "0";
  bool json = false;

  bool all() const { return rank == "all"; }
};

Status check_profile_flags(const GraphProfileFlags& f) {
  RETURN_IF_ERROR(f.model.check());
  if (f.all()) return Status::ok();
  const auto rank = settings::parse_integers(f.rank, {0, ranks::kMaxRanks - 1});
  if (!rank.is_ok() || rank->size() != 1)
    return invalid("--rank {}: allowed: 0 to {}, all", f.rank, f.model.tp_size - 1);
  return check_rank(f.model, rank->front());
}

void print_profiles(const GraphProfileFlags& f, std::span<const RankProfile> shown) {
  if (!f.json) {
    for (const RankProfile& r : shown) {
      if (f.model.tp_size > 1) fmt::print("rank {} of {}: ", r.rank, f.model.tp_size);
      fmt::print("{}", profile_text(r.profile, *r.model));
    }
    return;
  }
  OrderedJson all = OrderedJson::array();
  for (const RankProfile& r : shown) {
    OrderedJson j;
    if (f.model.tp_size > 1) j = {{"rank", r.rank}, {"of", f.model.tp_size}};
    j.update(profile_json(r.profile, *r.model));
    all.push_back(std::move(j));
  }
  OrderedJson out = all[0];
  if (f.all()) out = {{"of", f.model.tp_size}, {"profiles", all}};
  fmt::print("{}\n", out.dump());
}

Status run_profile(GraphProfileFlags f) {
  make_room(f.profile, f.model);
  ASSIGN_OR_RETURN(const service::LocalRanks ranks, service::open_local_ranks(f.model, service::RankProcessors::Apart));
  ASSIGN_OR_RETURN(std::vector<RankProfile> profiles, profile_ranks(ranks.all(), f.profile));
  const DeviceInfo& device = ranks->device().info();
  const MachineSpeed machine = measurement::measure_speed_of(device, profiles[0].profile.tracks);
  for (RankProfile& r : profiles) r.profile.machine = machine;
  std::span<const RankProfile> shown = profiles;
  if (!f.all()) shown = shown.subspan(static_cast<size_t>(std::stoll(f.rank)), 1);
  if (!f.output.empty()) {
    const std::string title = fmt::format("{} {}", f.model.model_path, device.name);
    const OrderedJson trace =
        f.model.tp_size > 1 ? chrome_trace(shown, title) : chrome_trace(shown[0].profile, *shown[0].model, title);
    RETURN_IF_ERROR(write_file_atomically(f.output, trace.dump() + "\n"));
  }
  print_profiles(f, shown);
  return Status::ok();
}

}  // namespace

Command add_graph_profile(CLI::App& graph) {
  auto flags = std::make_shared<GraphProfileFlags>();
  CLI::App* app = graph.add_subcommand("profile", "Where the time of one step goes: every kernel and every wait");
  add_profile_flags(*app, flags->profile);
  add_text(*app, "--output", flags->output, "write one step here as a trace for Perfetto or chrome://tracing", "FILE");
  add_switch(*app, "--json", flags->json, "one JSON object on standard output");
  flags->model.add_to(*app);
  add_text(*app, "--rank", flags->rank, "with --tp-size: the rank that is shown, or all", "N|all");
  return {app, [flags] { return check_profile_flags(*flags); }, [flags] { return run_profile(*flags); }};
}

}  // namespace reprise::apps
