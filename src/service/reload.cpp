#include "service/reload.h"

#include <algorithm>
#include <utility>

#include "base/log_form.h"
#include "service/span_post.h"
#include "settings/setting.h"

namespace reprise::service {

using settings::Given;
using settings::Origin;
using settings::Precedence;

Reload::Reload(const ServeOptions& options, server::Api& api, server::RequestLogFile& request_log,
               server::SpanExporter& spans)
    : options_(options), api_(api), request_log_(request_log), spans_(spans), running_(options.given) {}

void Reload::run() {
  const Status done = apply();
  api_.count_reload(done.is_ok());
  if (done.is_ok()) return;
  log::error("SIGHUP: nothing changes: {}", done.message());
  // Where the log was renamed, lines must not go on in the old file because of a wrong line in another file.
  if (const Status opened = request_log_.reopen(); !opened.is_ok())
    log::error("SIGHUP: the request log stays as it is: {}", opened.message());
}

Status Reload::apply() {
  ASSIGN_OR_RETURN(const Precedence now, options_.given_by_then());
  ASSIGN_OR_RETURN(const auto read, options_.interpret(now));
  ASSIGN_OR_RETURN(const log::Level level, read->model.level());
  // The last that can fail: the lines go to the old file until the new one is there.
  RETURN_IF_ERROR(request_log_.move_to(read->request_log));
  // The address was checked with the other settings. One that stays keeps its connection.
  if (!running_.agrees(now, "otlp_endpoint")) RETURN_IF_ERROR(point_spans_to(spans_, read->otlp_endpoint));
  const Changes changes = changes_to(now);
  // What changes is told where either level shows it.
  log::set_level(std::min(level, log::level()));
  if (!read->api_keys_file.empty()) log::info("SIGHUP: {} keys of {}", read->api.keys.size(), read->api_keys_file);
  if (!changes.live.empty()) log::info("SIGHUP: new values are in effect: {}", fmt::join(changes.live, ", "));
  if (const auto names = outranked_in(now); !names.empty())
    log::info("SIGHUP: flags or the environment outrank the file: {}", fmt::join(names, ", "));
  if (!changes.kept.empty())
    log::warning("SIGHUP: a restart puts into effect: {}", fmt::join(changes.kept, ", "));
  else if (changes.live.empty())
    log::info("SIGHUP: all settings are as they were");
  log::set_form(read->log_form());
  log::set_level(level);
  api_.change(std::move(static_cast<server::LiveOptions&>(read->api)));
  for (const settings::Setting& s : settings::table())
    if (s.live) running_.take(s.key, now);
  return Status::ok();
}

Reload::Changes Reload::changes_to(const Precedence& now) const {
  Changes out;
  for (const settings::Setting& s : settings::table())
    if (!running_.agrees(now, s.key)) (s.live ? out.live : out.kept).push_back(settings::name_of(s.key));
  return out;
}

std::vector<std::string> Reload::outranked_in(const Precedence& now) const {
  std::vector<std::string> out;
  const auto in_file = [](const Precedence& all, const std::string& key) {
    for (const Given& g : all.all_of(key))
      if (g.origin == Origin::File) return g.values;
    return std::vector<std::string>();
  };
  for (const std::string& key : now.keys())
    if (now.in_effect(key)->origin != Origin::File && in_file(now, key) != in_file(running_, key))
      out.push_back(settings::name_of(key));
  return out;
}

}  // namespace reprise::service
