// The HTML report of `reprise graph dump --format html`: one file with everything about one phase's graph, for a
// browser and nothing else: no script or style from elsewhere, and readable without the few lines of script it has.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "see/critical_path.h"
#include "see/step_profile.h"

namespace reprise::see {

struct HtmlReport {
  engine::Engine& engine;
  PhaseView view;
  std::string model;                   // as the user named it
  std::optional<StepProfile> profile;  // of the view's program; without it nothing is said about times
};

// The engine must have kept the graphs of its passes (PassOptions::keep_graphs).
Result<std::string> html_report(const HtmlReport& report);

// For the parts of the report.
std::string escape_html(std::string_view text);
std::string op_colour(std::string_view op);
std::string bytes_in_words(double bytes);
std::string_view report_style();
std::string_view report_script();

// Pictures (SVG) and tables of the report.
// Offsets up to `height` bytes.
std::string memory_picture(const CompiledModel& model, size_t height);
// How much of the arena holds nearly all values; the whole where that is not much less.
size_t usual_height(const MemoryPlan& plan);
// The path's kernels are underlined.
std::string timeline_picture(const StepProfile& profile, const CompiledModel& model, const CriticalPath& path);
std::string path_table(const StepProfile& profile, const CriticalPath& path);
std::string op_table(const StepProfile& profile, const CompiledModel& model);
// Without a profile no times.
Result<std::string> node_table(const CompiledModel& model, const StepProfile* profile, const CriticalPath* path);
Result<std::string> pass_list(const PipelineReport& report);
// What this rank of a model over several ranks holds and exchanges.
struct RankContents;
std::string rank_section(const RankContents& rank);

}  // namespace reprise::see
