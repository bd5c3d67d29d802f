#include "passes/pass_manager.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/elapsed.h"
#include "base/file.h"
#include "base/log.h"
#include "graph/text.h"

namespace reprise {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

Status dump(const Graph& graph, const PassOptions& options, size_t number, std::string_view pass,
            std::string_view when) {
  if (options.dump_dir.empty()) return Status::ok();
  std::error_code failed;
  std::filesystem::create_directories(options.dump_dir, failed);
  if (failed) return invalid("`dump_dir` {}: {}", options.dump_dir, failed.message());
  return write_file_atomically(fmt::format("{}/{:02}-{}.{}.txt", options.dump_dir, number, pass, when), print(graph));
}

}  // namespace

std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

Status PassManager::add(Pass pass) {
  CHECK(pass.run, "pass {} has nothing to run", pass.name);
  for (const Pass& p : passes_)
    if (p.name == pass.name) return invalid("there is a pass named {} already", pass.name);
  if (pass.name == "all" || pass.name == "none" || pass.name.empty())
    return invalid("a pass cannot be named \"{}\"", pass.name);
  passes_.push_back(std::move(pass));
  return Status::ok();
}

std::vector<std::string> PassManager::names() const {
  std::vector<std::string> out;
  for (const Pass& p : passes_) out.push_back(p.name);
  return out;
}

Status PassManager::check(const PassOptions& o, const OpRegistry& ops) const {
  const auto known = names();
  auto check_list = [&](const std::vector<std::string>& list, std::string_view flag, std::string_view words) -> Status {
    for (auto& name : list) {
      if (contains(known, name) || contains(split_names(words), name)) continue;
      // A fusion has the name of its op, and so had it before.
      if (const OpSchema* op = ops.find(name); op && contains(known, op->name))
        return invalid("{}: pass \"{}\" is now named \"{}\"", flag, name, op->name);
      return invalid("{}: pass \"{}\" is not known; known: {}{}{}", flag, name, words, words.empty() ? "" : ", ",
                     fmt::join(known, ", "));
    }
    return Status::ok();
  };
  RETURN_IF_ERROR(check_list(o.enable, "`passes`", "all, none"));
  RETURN_IF_ERROR(check_list(o.disable, "`disable_pass`", ""));
  RETURN_IF_ERROR(check_list(o.print_after, "`print_after`", "all"));
  if (o.enable.size() > 1 && (contains(o.enable, "all") || contains(o.enable, "none")))
    return invalid("`passes`: \"all\" and \"none\" stand alone");
  for (const Pass& p : passes_)
    if (p.required && contains(o.disable, p.name))
      return invalid("`disable_pass`: {} is required and cannot be left out", p.name);
  return Status::ok();
}

std::string PassManager::why_skipped(const Pass& pass, const PassOptions& o) {
  if (pass.required) return {};
  if (contains(o.disable, pass.name)) return "switched off by `disable_pass`";
  if (contains(o.leave_out, pass.name)) return o.leave_out_reason;
  if (contains(o.enable, "all") || contains(o.enable, pass.name)) return {};
  return "not among `passes`";
}

Result<std::vector<PassReport>> PassManager::run(Graph& graph, PassContext& context, const PassOptions& options) const {
  RETURN_IF_ERROR(check(options, context.ops()));
  std::vector<PassReport> reports;
  int64_t allowance = options.bisect_limit;
  std::string text = options.keep_graphs ? print(graph) : std::string();
  for (const Pass& pass : passes_) {
    context.begin(pass.name, pass.required, allowance);
    context.report().nodes_before = context.report().nodes_after = graph.size();
    context.report().skipped = why_skipped(pass, options);
    if (context.report().skipped.empty()) {
      const size_t number = reports.size() + 1;
      RETURN_IF_ERROR(dump(graph, options, number, pass.name, "before"));
      const auto start = std::chrono::steady_clock::now();
      RETURN_IF_ERROR(pass.run(graph, context).at(fmt::format("pass {}", pass.name)));
      context.report().seconds = seconds_since(start);
      context.report().nodes_after = graph.size();
      if (!pass.required) allowance = context.allowance();
      if (options.keep_graphs) {
        std::string after = print(graph);
        if (after != text) context.report().graph = text = std::move(after);
      }
      if (const PassRemark* last = context.last_allowed())
        log::notice("pass-bisect-limit {}: in graph \"{}\" the last change is pass {} at %{} ({})",
                    options.bisect_limit, graph.name(), pass.name, last->at, last->reason);
      RETURN_IF_ERROR(dump(graph, options, number, pass.name, "after"));
      if (contains(options.print_after, pass.name) || contains(options.print_after, "all")) {
        const std::string shown = fmt::format("# after {}\n{}", pass.name, print(graph));
        if (options.print)
          options.print(shown);
        else
          log::show(shown);
      }
      if (options.verify_each) RETURN_IF_ERROR(verify(graph).at(fmt::format("after pass {}", pass.name)));
    }
    reports.push_back(context.report());
  }
  return reports;
}

}  // namespace reprise
