// Settings by where they come from: the command line, the environment, the file of settings. Every row of the table
// with a wrong value from each, whose error names the row and what is allowed; which one is in effect; and
// --print-settings, which tells. The library's setters have theirs in tests/capi/library_test.py.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>

#include "apps/serving.h"
#include "common/command_settings.h"
#include "common/flags.h"
#include "settings/effects.h"
#include "settings/environment.h"
#include "settings/values.h"

namespace reprise::apps::origins_test {
namespace {

using settings::Kind;
using settings::Setting;

// A variable of this process, while it lives.
class Set {
 public:
  Set(std::string name, const std::string& text) : name_(std::move(name)) { ::setenv(name_.c_str(), text.c_str(), 1); }
  ~Set() { ::unsetenv(name_.c_str()); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  std::string name_;
};

// A command with one setting, and --config.
struct OneSetting {
  explicit OneSetting(const Setting& row) : name(settings::name_of(row.key)) {
    app.require_subcommand(1);
    CLI::App* command = app.add_subcommand("command");
    settings::Target target = &text;
    if (row.kind == Kind::Switch) target = &on;
    if (row.kind == Kind::Integer) target = &number;
    if (row.kind == Kind::Integers) target = &numbers;
    if (row.kind == Kind::Real) target = &real;
    if (row.kind == Kind::Texts || row.kind == Kind::Words) target = &texts;
    add_setting(*command, {row.key, target});
    if (row.key != "config") add_setting(*command, {"config", &config});
  }
  // The error of a command line, which is one line; "" where it has none.
  std::string problem(std::vector<std::string> words) {
    words.insert(words.begin(), {"reprise", "command"});
    testing::internal::CaptureStderr();
    const auto code = parse_arguments(app, words);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(code.has_value(), !said.empty());
    if (!code) return {};
    EXPECT_EQ(*code, kExitUsage);
    EXPECT_TRUE(said.starts_with("error: ") && said.find('\n') == said.size() - 1) << said;
    return said;
  }
  CLI::App app{"", "reprise"};
  std::string name, config;
  bool on = false;
  std::optional<std::string> text;
  std::optional<int64_t> number;
  std::vector<int64_t> numbers;
  std::optional<double> real;
  std::vector<std::string> texts;
};

// Texts that are no value of the row: none where any text is one.
std::vector<std::string> wrong_values(const Setting& s) {
  switch (s.kind) {
    case Kind::Switch: return {"maybe", "1"};
    case Kind::Choice: return {"no-such-word"};
    case Kind::Real: return {"warm", "nan"};
    case Kind::Integers: return {"1,x"};
    case Kind::Integer: break;
    default: return {};
  }
  std::vector<std::string> out{"many", "99999999999999999999"};
  if (s.integers.low > INT64_MIN) out.push_back(std::to_string(s.integers.low - 1));
  if (s.integers.high < INT64_MAX) out.push_back(std::to_string(s.integers.high + 1));
  return out;
}

TEST(Origins, WrongValuesNameTheRowAndWhatIsAllowed) {
  const Folder folder;
  const std::string file = folder / "f.json";
  size_t rows = 0;
  for (const Setting& s : settings::table()) {
    const std::string flag = settings::flag_of(s.key), name = settings::name_of(s.key);
    const std::string variable = settings::variable_of(s.key);
    const std::string allowed = s.kind == Kind::Switch ? "true, false" : settings::allowed(s);
    const auto wrong = wrong_values(s);
    rows += !wrong.empty();
    for (const std::string& value : wrong) {
      const std::string on_line = OneSetting(s).problem({flag + "=" + value});
      EXPECT_TRUE(holds(on_line, flag) && holds(on_line, value) && holds(on_line, "allowed: " + allowed)) << on_line;
      {
        const Set set(variable, value);
        const std::string in_environment = OneSetting(s).problem({});
        EXPECT_TRUE(holds(in_environment, variable + ": " + name + ": ") && holds(in_environment, value) &&
                    holds(in_environment, "allowed: " + allowed))
            << in_environment;
      }
      folder.write("f.json", fmt::format("{{\"{}\": {}}}", name, OrderedJson(value).dump()));
      const std::string in_file = OneSetting(s).problem({"--config=" + file});
      EXPECT_TRUE(holds(in_file, file + ": " + name + ": ") && holds(in_file, value) &&
                  holds(in_file, "allowed: " + allowed))
          << in_file;
    }
    // Of texts the form alone can be wrong.
    if (s.kind != Kind::Switch) EXPECT_TRUE(holds(OneSetting(s).problem({flag}), flag)) << flag;
    if (s.key == "config") continue;
    folder.write("f.json", fmt::format("{{\"{}\": null}}", name));
    EXPECT_TRUE(holds(OneSetting(s).problem({"--config=" + file}), file + ": " + name + ": null is no value")) << name;
    if (s.kind != Kind::Texts && s.kind != Kind::Words) continue;
    const Set set(variable, "[\"a\"");
    const std::string in_environment = OneSetting(s).problem({});
    EXPECT_TRUE(holds(in_environment, variable + ": " + name + ": ") && holds(in_environment, "a JSON list"))
        << in_environment;
  }
  EXPECT_GT(rows, 100u);
}

// A text that two of them do not give, for each type of value.
TEST(Origins, TheHighestOneIsInEffect) {
  const Folder folder;
  struct Case {
    const char* key;
    std::array<const char*, 3> values;  // of the file, the environment, the line
  };
  for (const Case& c : {Case{"port", {"1", "2", "3"}}, Case{"host", {"a", "b", "c"}},
                        Case{"access_log", {"true", "false", "true"}}, Case{"drain_delay", {"1", "2.5", "0.5"}},
                        Case{"log_format", {"json", "text", "json"}}, Case{"override", {"a=1", "b=2", "c=3"}}}) {
    const Setting& s = *settings::find(c.key);
    folder.write("f.json", fmt::format("{{\"{}\": {}}}", settings::name_of(c.key), OrderedJson(c.values[0]).dump()));
    const std::string config = "--config=" + (folder / "f.json");
    const auto in_effect = [&](const std::vector<std::string>& words, const char* variable) {
      const Set set(settings::variable_of(c.key), variable);  // an empty one is not set
      OneSetting one(s);
      EXPECT_EQ(one.problem(words), "");
      const settings::Target target = s.kind == Kind::Switch    ? settings::Target(&one.on)
                                      : s.kind == Kind::Integer ? settings::Target(&one.number)
                                      : s.kind == Kind::Real    ? settings::Target(&one.real)
                                      : s.kind == Kind::Texts   ? settings::Target(&one.texts)
                                                                : settings::Target(&one.text);
      const auto held = settings::values_in(target);
      EXPECT_EQ(held.size(), 1u);
      const settings::Given* given =
          CommandSettings::find(*one.app.get_subcommand("command"))->given().in_effect(c.key);
      EXPECT_EQ(given->values, held) << c.key;
      return held.empty() ? std::string() : held.front();
    };
    const std::string flag = settings::flag_of(c.key) + "=" + c.values[2];
    EXPECT_EQ(in_effect({config}, ""), c.values[0]) << c.key;
    EXPECT_EQ(in_effect({config}, c.values[1]), c.values[1]) << c.key;
    EXPECT_EQ(in_effect({config, flag}, c.values[1]), c.values[2]) << c.key;
    EXPECT_EQ(in_effect({flag}, ""), c.values[2]) << c.key;
  }
}

const std::string kModel = "--model-path " + model_folder("llama_mha_untied");

TEST(Origins, TheProgramReadsItsEnvironment) {
  const std::string check = "serve --check " + kModel;
  EXPECT_EQ(run_binary(check, "REPRISE_SET_PORT=8000 REPRISE_PORT=tcp://10.0.0.1:80").exit_code, 0);
  for (const auto& [variable, instead] : std::vector<std::pair<std::string, std::string>>{
           {"REPRISE_SET_PORT=high", "REPRISE_SET_PORT: port: \"high\" is not a whole number; allowed: 0 to 65535"},
           {"REPRISE_SET_PROT=1", "close names: REPRISE_SET_PORT"},
           {"REPRISE_SET_MAX_NUM_SEQS=1", "that of `max-running-requests` is REPRISE_SET_MAX_RUNNING_REQUESTS"},
           {"REPRISE_SET_SOCKET_MODE=999", "--socket-mode 999: allowed: 000 to 777"},
           {"REPRISE_SET_SSL_KEYFILE=k", "reverse proxy"}}) {
    const Outcome o = run_binary(check, variable);
    EXPECT_EQ(o.exit_code, 2) << variable;
    EXPECT_TRUE(holds(o.err, instead)) << o.err;
  }
  // The file itself may be named so, and it is outranked by variables as by flags.
  const Folder folder;
  folder.write("f.json", R"({"port": 70000})");
  const std::string config = "REPRISE_SET_CONFIG=" + (folder / "f.json");
  const Outcome named = run_binary(check, config);
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_TRUE(holds(named.err, (folder / "f.json") + ": port: 70000 is out of range")) << named.err;
  folder.write("f.json", R"({"graph": "off"})");
  EXPECT_EQ(run_binary(check + " --graph-decode whole", config).exit_code, 2);
  EXPECT_EQ(run_binary(check + " --graph-decode whole", config + " REPRISE_SET_GRAPH=auto").exit_code, 0);
  // Settings of `serve` are no matter of other commands, whatever they are set to; a name that nobody has is.
  const std::string generate = "generate " + kModel + " --prompt-ids 1 --max-new-tokens 2";
  EXPECT_EQ(run_binary(generate, "REPRISE_SET_PORT=high REPRISE_SET_HOST=h").exit_code, 0);
  EXPECT_EQ(run_binary(generate, "REPRISE_SET_PROT=1").exit_code, 2);
  EXPECT_EQ(run_binary("version", "REPRISE_SET_PROT=1").exit_code, 0);
  // It reaches the model: what it names is what is run.
  const std::string bare = "generate --prompt-ids 1 --max-new-tokens 2";
  const std::string set = "REPRISE_SET_MODEL_PATH=" + model_folder("llama_mha_untied");
  EXPECT_EQ(run_binary(bare, set).out, run_binary(generate).out);
  EXPECT_NE(run_binary(bare).exit_code, 0);
}

TEST(Origins, PrintSettingsTellsOfEach) {
  const Folder folder;
  folder.write("f.json", R"({"port": 7000, "max-running-requests": 8, "log-format": "json", "api-key": "sk-file"})");
  const std::string line = fmt::format("serve {} --config {} --port 8000", kModel, folder / "f.json");
  const std::string before = "REPRISE_SET_MAX_RUNNING_REQUESTS=4 REPRISE_SET_TEMPERATURE=0";
  const Outcome text = run_binary(line + " --print-settings", before);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_FALSE(holds(text.out + text.err, "sk-file"));
  const auto line_of = [&](const std::string& name) {
    const size_t at = text.out.find("\n" + name + " ");
    return at == std::string::npos ? std::string() : text.out.substr(at + 1, text.out.find('\n', at + 1) - at - 1);
  };
  EXPECT_TRUE(holds(line_of("max-running-requests"), " 4 ") && holds(line_of("max-running-requests"), " environment") &&
              holds(line_of("max-running-requests"), " 8 (file "))
      << line_of("max-running-requests");
  EXPECT_TRUE(holds(line_of("context-length"), " model")) << line_of("context-length");
  EXPECT_TRUE(holds(line_of("api-key"), "(hidden)")) << line_of("api-key");
  EXPECT_TRUE(holds(text.out, "`serve` does not read: REPRISE_SET_TEMPERATURE\n")) << text.out;
  EXPECT_EQ(line_of("enforce-eager"), "");  // another system's word that was not given

  const OrderedJson json = json_of(run_binary(line + " --print-settings=json --enforce-eager", before));
  EXPECT_EQ(json["command"], "serve");
  EXPECT_EQ(json["not_read"], OrderedJson{"REPRISE_SET_TEMPERATURE"});
  const OrderedJson& settings = json["settings"];
  EXPECT_EQ(
      settings["port"].dump(),
      fmt::format(R"({{"value":"8000","origin":"flag","outranked":[{{"value":"7000","origin":"file","place":{}}},)"
                  R"({{"value":"30000","origin":"default"}}]}})",
                  OrderedJson(folder / "f.json").dump()));
  EXPECT_EQ(settings["enforce-eager"]["value"], "true");
  EXPECT_EQ(settings["dtype"]["origin"], "model");
  EXPECT_EQ(settings["log-format"]["origin"], "file");

  // Of other commands too, and beside an error, which it helps to find.
  EXPECT_TRUE(holds(run_binary("generate --print-settings " + kModel + " --prompt-ids 1").out, "temperature"));
  const Outcome wrong = run_binary("serve --print-settings --graph off --graph-decode whole " + kModel);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(holds(wrong.out, "\ngraph-decode ")) << wrong.out;
  EXPECT_EQ(run_binary(line + " --print-settings=yaml").exit_code, 2);
}

}  // namespace
}  // namespace reprise::apps::origins_test
