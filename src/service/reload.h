// Reload: what SIGHUP does to a server. It reads the file of settings, the files of keys and the request log's place
// anew. Settings that are live change; others that differ are named, because they need a restart. Everything is read
// and checked before anything changes, so a wrong file changes nothing. The supervisor's thread alone uses it.
#pragma once

#include <string>
#include <vector>

#include "server/request_log_file.h"
#include "server/span_exporter.h"
#include "service/serve_process.h"
#include "settings/precedence.h"

namespace reprise::service {

class Reload {
 public:
  // All of them outlive it.
  Reload(const ServeOptions& options, server::Api& api, server::RequestLogFile& request_log,
         server::SpanExporter& spans);
  void run();

 private:
  // Names of settings whose value in effect is another one.
  struct Changes {
    std::vector<std::string> live, kept;
  };
  Status apply();
  Changes changes_to(const settings::Precedence& now) const;
  // What the file says of these is without effect, because a flag or the environment says something else.
  std::vector<std::string> outranked_in(const settings::Precedence& now) const;

  const ServeOptions& options_;
  server::Api& api_;
  server::RequestLogFile& request_log_;
  server::SpanExporter& spans_;
  settings::Precedence running_;  // what the server runs with
};

}  // namespace reprise::service
