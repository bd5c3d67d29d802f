// The program about itself: --version, help, completion, and the spellings of other programs.
#include <regex>

#include "common/kernels_here.h"
#include "common/spellings.h"
#include "run_binary.h"

namespace reprise::apps::about_test {
namespace {

const std::vector<std::string>& all_commands() {
  static const std::vector<std::string> names{
      "generate",      "chat",          "serve",           "bench one-batch", "bench ops",     "bench serving",
      "bench startup", "graph explain", "graph dump",      "graph diff",      "graph profile", "graph verify",
      "eval choice",   "eval gsm8k",    "eval perplexity", "quantize",        "pull",          "doctor"};
  return names;
}

TEST(About, VersionsAreOne) {
  const Outcome flag = run_binary("--version");
  EXPECT_EQ(flag.exit_code, 0);
  EXPECT_TRUE(std::regex_search(flag.out, std::regex(R"(^reprise \d+\.\d+\.\d+ \(commit \w+\)\ncompiler +\S)")))
      << flag.out;
  for (const char* part :
       {"kernels", "baseline", "devices", "cpu", "ascend", "cuda", "libreprise, ABI", "build", "Apache-2.0"})
    EXPECT_NE(flag.out.find(part), std::string::npos) << part;
  EXPECT_EQ(run_binary("-V").out, flag.out);
  EXPECT_EQ(run_binary("version").out, flag.out);
}

// A program of ./dev demo that came to another processor. What it is built for here runs.
TEST(About, KernelsOfAnotherProcessorAreAnError) {
  using cpu::Isa;
  EXPECT_TRUE(kernels_here(cpu::built_isas(), cpu::supported_isas()).is_ok());
  EXPECT_TRUE(kernels_here({Isa::Baseline, Isa::Avx2}, {Isa::Baseline}).is_ok());
  const Status none = kernels_here({Isa::Avx512, Isa::Amx}, {});
  EXPECT_EQ(none.code(), Code::Unsupported);
  EXPECT_EQ(none.message(),
            "this program was built by `./dev demo` for processors with avx512 or amx, and this one has not; "
            "`./dev build` makes one for all");
}

TEST(About, HelpIsACommandToo) {
  EXPECT_EQ(run_binary("help").out, run_binary("--help").out);
  EXPECT_EQ(run_binary("help graph explain").out, run_binary("graph explain --help").out);
  EXPECT_EQ(run_binary("help serve --help-all").out, run_binary("serve --help-all").out);
  const Outcome wrong = run_binary("help nothing");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("not a command"), std::string::npos) << wrong.err;
}

// The flags of a help page, each with its whole text.
std::vector<std::string> flags_of(const std::string& page) {
  std::vector<std::string> out;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("  -"))
      out.push_back(line);
    else if (line.starts_with("      ") && !out.empty())
      out.back() += " " + line.substr(line.find_first_not_of(' '));
  }
  return out;
}

TEST(About, HelpShowsTheFlagsOfEveryDay) {
  for (const std::string& command : all_commands()) {
    const std::string page = run_binary(command + " --help").out;
    const auto shown = flags_of(page);
    EXPECT_LE(shown.size(), 30u) << command;
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
    if (page.find("--help-all\n") == std::string::npos) continue;
    const auto all = flags_of(run_binary(command + " --help-all").out);
    EXPECT_GT(all.size(), shown.size() + 10) << command;
    EXPECT_NE(page.find("more flags: reprise " + command + " --help-all"), std::string::npos) << page;
  }
  const std::string serve = run_binary("serve --help").out;
  for (const char* flag : {"--port", "--model-path", "--context-length", "--api-key"})
    EXPECT_NE(serve.find(flag), std::string::npos) << flag;
  EXPECT_EQ(serve.find("--inject-fault"), std::string::npos);
}

// Switches are off until they are given. Of all others the page says what holds without them.
TEST(About, EveryDefaultIsShown) {
  std::set<std::string> silent;
  for (const std::string& command : all_commands()) {
    std::string page = run_binary(command + " --help-all").out;
    if (page.empty()) page = run_binary(command + " --help").out;
    for (const std::string& flag : flags_of(page)) {
      std::smatch name;
      std::regex_search(flag, name, std::regex(R"(--[a-z0-9-]+)"));
      // The names end where two spaces are; after a value's name the text begins in the next line.
      const std::string names = flag.substr(2, flag.find("  ", 2) - 2);
      const bool takes_value = std::regex_search(names, std::regex(R"( [A-Z{])"));
      if (takes_value && flag.find("default") == std::string::npos && flag.find("required") == std::string::npos)
        silent.insert(name[0]);
    }
  }
  std::string all;
  for (const std::string& name : silent) all += name + "\n";
  EXPECT_EQ(all, "");
}

TEST(About, ShellsCompleteCommandsFlagsAndValues) {
  const Folder folder;
  folder.write("ask.sh", R"(source <("$1" completion bash)
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _reprise; printf '%s\n' "${COMPREPLY[*]}"; }
ask reprise serv
ask reprise bench one
ask reprise serve --log-f
ask reprise serve --log-format j
ask reprise serve smollm2 --port 1 --log-format t
ask reprise graph explain --pass-bis
)");
  const std::string said = (folder / "said");
  const int status = std::system(fmt::format("bash {} {} >{} 2>&1", folder / "ask.sh", REPRISE_BINARY, said).c_str());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content_of(said), "serve\none-batch\n--log-format\njson\ntext\n--pass-bisect-limit\n");
  for (const char* shell : {"zsh", "fish"}) {
    const Outcome script = run_binary(std::string("completion ") + shell);
    EXPECT_EQ(script.exit_code, 0);
    EXPECT_NE(script.out.find("log-format"), std::string::npos);
    folder.write("script", script.out);
    // Checked where the shell is.
    const std::string check = fmt::format("command -v {0} >/dev/null || exit 0; {0} -n {1}", shell, folder / "script");
    EXPECT_EQ(std::system(check.c_str()), 0) << shell;
  }
  const Outcome other = run_binary("completion tcsh");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("allowed: bash, zsh, fish"), std::string::npos) << other.err;
}

TEST(Spellings, ShortFlagsOfSeveralLetters) {
  const char* given[] = {"reprise", "serve", "-np", "4", "-ngl", "99", "-c", "2048"};
  EXPECT_EQ(plain_words(8, given),
            (std::vector<std::string>{"reprise", "serve", "--parallel", "4", "--n-gpu-layers", "99", "-c", "2048"}));
  const char* help[] = {"reprise", "help", "graph", "dump"};
  EXPECT_EQ(plain_words(4, help), (std::vector<std::string>{"reprise", "graph", "dump", "--help"}));
}

TEST(Spellings, OfLlamaCppAndVllmMeanTheSame) {
  const std::string model = model_folder("llama_mha_untied");
  const auto tokens = [&](const std::string& flags) {
    const Outcome o = run_binary("generate --prompt-ids 5,6,7 --ignore-eos --log-level warning " + flags);
    EXPECT_EQ(o.exit_code, 0) << flags << "\n" << o.err;
    return o.out;
  };
  const std::string ours = tokens("--model-path " + model + " --max-new-tokens 6 --temperature 0");
  EXPECT_FALSE(ours.empty());
  EXPECT_EQ(tokens(model + " -n 6 --temp 0"), ours);
  EXPECT_EQ(tokens("-m " + model + " -c 128 -t 1 -np 2 -ngl 99 -n 6 --temp 0"), ours);
  EXPECT_EQ(
      tokens("--model " + model + " --max-model-len 128 --max-num-seqs 2 --enforce-eager --max-tokens 6 --temp 0"),
      ours);
  for (const auto& [flag, instead] :
       std::vector<std::pair<std::string, std::string>>{{"--gpu-memory-utilization 0.9", "--mem-fraction-static"},
                                                        {"-ctk f16", "--kv-cache-dtype"},
                                                        {"--ssl-keyfile k.pem", "reverse proxy"},
                                                        {"--enforce-eager --graph required", "contradict"},
                                                        {"--model-draft d.gguf", "--speculative-draft-model-path"}}) {
    const Outcome o = run_binary("serve --check " + model + " " + flag);
    EXPECT_EQ(o.exit_code, 2) << flag;
    EXPECT_NE(o.err.find(instead), std::string::npos) << o.err;
  }
}

}  // namespace
}  // namespace reprise::apps::about_test
