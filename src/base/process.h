// run_process: another program from start to end, without a shell. Its standard output and error are collected
// together; its standard input is empty. Blocks the calling thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace reprise {

struct ProcessResult {
  int exit_code = 0;  // 128 + n after signal n
  std::string output;
};

// `environment` is added to ours. `tick` is called about ten times a second while the program runs. A program that does
// not exist is an error of code NotFound.
Result<ProcessResult> run_process(const std::vector<std::string>& command,
                                  const std::vector<std::pair<std::string, std::string>>& environment = {},
                                  const std::function<void()>& tick = {});

// run_process(), or what plays it in a test.
using RunProgram = std::function<Result<ProcessResult>(
    const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment,
    const std::function<void()>& tick)>;

}  // namespace reprise
