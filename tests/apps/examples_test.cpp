// The files of examples/ that run a server: systemd and Kubernetes would take them, and their command lines are valid.
#include <gtest/gtest.h>

#include <regex>

#include "apps/run_binary.h"

namespace reprise::apps::examples_test {
namespace {

std::string example(const std::string& name) { return std::string(REPRISE_SOURCE_DIR) + "/examples/" + name; }

Outcome run_shell(const std::string& command) {
  const Folder folder;
  const int status =
      std::system(fmt::format("{} >{} 2>{} </dev/null", command, folder / "out", folder / "err").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, content_of(folder / "out"), content_of(folder / "err")};
}

bool is_there(const std::string& command) { return run_shell(command).exit_code == 0; }

// `reprise serve ...` as an example has it, with a model that is here, and only checked.
void expect_valid(std::string line) {
  line = std::regex_replace(line, std::regex("--model-path [^ ]+"), "--model-path " + model_folder("qwen3_tied"));
  const size_t serve = line.find("reprise serve ");
  ASSERT_NE(serve, std::string::npos) << line;
  const Outcome o = run_binary("serve --check " + line.substr(serve + 14));
  EXPECT_EQ(o.exit_code, 0) << line << "\n" << o.err;
}

// The units as packages have them, with the built program in place of the installed one.
TEST(Examples, SystemdTakesTheUnits) {
  const Folder folder;
  for (const char* name : {"reprise.service", "reprise@.service", "reprise.socket"}) {
    std::string unit = content_of(example(fmt::format("systemd/{}", name)));
    ASSERT_FALSE(unit.empty()) << name;
    std::smatch start;
    if (std::regex_search(unit, start, std::regex("\nExecStart=([^\n]+)\n"))) {
      folder.write("server.json", run_binary("help settings --config").out);
      const std::string line = start[1];
      ASSERT_TRUE(std::regex_search(line, std::regex("^/usr/bin/reprise serve --config /etc/reprise/[^ ]+[.]json$")))
          << line;
      expect_valid(std::regex_replace(line, std::regex("/etc/reprise/[^ ]+"), folder / "server.json") +
                   " --model-path M");
    }
    unit = std::regex_replace(unit, std::regex("/usr/bin/reprise"), REPRISE_BINARY);
    folder.write(name, std::regex_replace(unit, std::regex("User=reprise\n"), ""));
  }
  if (!is_there("systemd-analyze --version")) {
    if (std::getenv("CI")) FAIL() << "there is no systemd-analyze (Debian: systemd)";
    GTEST_SKIP() << "there is no systemd-analyze (Debian: systemd)";
  }
  // Its status is 0 for a key that it does not know; what it says is what counts.
  const auto verify = [&](const std::string& names) {
    const Outcome o = run_shell(fmt::format("cd {} && systemd-analyze verify --man=no {}", folder.path(), names));
    return o.out + o.err;
  };
  EXPECT_EQ(verify("./reprise.service ./reprise.socket ./reprise@model.service"), "");
  folder.write("wrong.service",
               std::regex_replace(content_of(folder / "reprise.service"), std::regex("UMask="), "UMsk="));
  EXPECT_TRUE(holds(verify("./wrong.service"), "Unknown key 'UMsk'"));
  // The exposure is at most 2.0 of 10.
  for (const char* name : {"reprise.service", "reprise@.service"}) {
    const std::string command = "systemd-analyze security --offline=yes --no-pager --threshold=";
    const Outcome o = run_shell(fmt::format("{}20 {}", command, example(fmt::format("systemd/{}", name))));
    EXPECT_EQ(o.exit_code, 0) << o.out;
    EXPECT_NE(run_shell(fmt::format("{}1 {}", command, example(fmt::format("systemd/{}", name)))).exit_code, 0);
  }
}

TEST(Examples, ManifestsKeepToTheirKinds) {
  const std::string check = "python3 " + std::string(REPRISE_SOURCE_DIR) + "/tests/apps/check_manifests.py ";
  if (!is_there("python3 -c 'import yaml'")) {
    if (std::getenv("CI")) FAIL() << "python3 has no yaml (Debian: python3-yaml)";
    GTEST_SKIP() << "python3 has no yaml (Debian: python3-yaml)";
  }
  for (const char* name : {"kubernetes/lws.yaml", "kubernetes/mpijob.yaml"}) {
    const Outcome o = run_shell(check + example(name));
    EXPECT_EQ(o.exit_code, 0) << o.err;
    std::istringstream commands(o.out);
    int count = 0;
    for (std::string line; std::getline(commands, line); ++count) {
      std::string words;
      for (const Json& word : Json::parse(line)) words += word.get<std::string>() + " ";
      // Under mpirun the launcher says how many there are.
      expect_valid(words);
    }
    EXPECT_EQ(count, 1) << name;
    // The check sees a field that is none, and one that is missing.
    const Folder folder;
    folder.write("wrong.yaml", std::regex_replace(content_of(example(name)), std::regex("spec:"), "specs:"));
    const Outcome wrong = run_shell(check + (folder / "wrong.yaml"));
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_TRUE(holds(wrong.err, "there is no field 'specs'")) << wrong.err;
    EXPECT_TRUE(holds(wrong.err, "'spec' is missing")) << wrong.err;
  }
}

}  // namespace
}  // namespace reprise::apps::examples_test
