// `reprise chat` and `generate` with pipes, and the parts of a conversation by themselves.
#include <sys/stat.h>

#include <thread>

#include "api/sampling_settings.h"
#include "apps/serving.h"
#include "base/terminal.h"
#include "chat/commands.h"
#include "chat/conversation.h"
#include "chat/history.h"
#include "chat/key_decoder.h"
#include "support/http_client.h"

namespace reprise::apps::chat_test {

using namespace api;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string piped(const std::string& lines) { return fmt::format("printf '{}' |", lines); }

// The start says one line, the answers follow, and no byte is for a terminal.
TEST(ChatPipe, EachLineIsAnswered) {
  const Model model;
  const std::string chat = "chat --max-new-tokens 4 --ignore-eos " + model.flags();
  const Outcome two = run_binary(chat, piped("a\\nb\\n"));
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(std::count(two.err.begin(), two.err.end(), '\n'), 1) << two.err;
  EXPECT_TRUE(has(two.err, ": cpu, f32, context 512\n")) << two.err;
  EXPECT_FALSE(has(two.out + two.err, "\033"));
  const Outcome one = run_binary(chat, piped("a"));
  EXPECT_TRUE(two.out.starts_with(one.out));
  EXPECT_GT(two.out.size(), one.out.size());
  // A line that goes on is one message; two slashes are a message.
  EXPECT_EQ(run_binary(chat, piped("a\\\\\\nb\\n")).out,
            run_binary(chat + " --system x", piped("/system -\\na\\\\\\nb\\n")).out);
  EXPECT_EQ(run_binary(chat, piped("//a\\n")).exit_code, 0);
}

TEST(ChatPipe, CommandsWorkAndWrongLinesEndIt) {
  const Model model;
  const std::string chat = "chat --max-new-tokens 4 --ignore-eos --log-level warning " + model.flags();
  const std::string file = model.folder / "saved.json";
  const Outcome o =
      run_binary(chat, piped("a\\n/regen\\n/save " + file + "\\n/reset\\n/load " + file + "\\n/stats\\n"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(has(o.err, "2 messages written") && has(o.err, "2 messages read") && has(o.err, "answers")) << o.err;
  const auto loaded = Conversation::load(file);
  ASSERT_TRUE(loaded.is_ok());
  EXPECT_EQ(loaded->messages().size(), 2u);
  for (const auto& [line, part] : std::initializer_list<std::pair<std::string, std::string>>{
           {"/rgen", "/rgen is not a command; close names: /regen"},
           {"/save", "/save needs a file"},
           {"/reset now", "/reset takes nothing after it"},
           {"/regen", "no answer to draw again"},
           {"/load /no/such/file", "/no/such/file"},
           {"a\\377b", "line 1 of standard input: byte 1 is not UTF-8 (0xff)"}}) {
    const Outcome wrong = run_binary(chat, piped(line + "\\n"));
    EXPECT_EQ(wrong.exit_code, 1) << line;
    EXPECT_EQ(wrong.err.rfind("error: ", 0), 0u) << wrong.err;
    EXPECT_EQ(wrong.err.find('\n'), wrong.err.size() - 1) << wrong.err;
    EXPECT_TRUE(has(wrong.err, part)) << wrong.err;
  }
}

TEST(ChatPipe, AnotherDrawHasAnotherSeed) {
  const Model model;
  const Outcome o =
      run_binary("chat --max-new-tokens 12 --ignore-eos --temperature 2 " + model.flags(),
                 piped("a\\n/save " + (model.folder / "1") + "\\n/regen\\n/save " + (model.folder / "2") + "\\n"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_NE(content_of(model.folder / "1"), content_of(model.folder / "2"));
}

TEST(GenerateInput, ThePromptCanComeFromAPipe) {
  const Model model;
  const std::string flags = " --json --max-new-tokens 4 --ignore-eos " + model.flags();
  const OrderedJson expected = json_of(run_binary("generate --prompt 'two\nlines'" + flags))["output"];
  EXPECT_EQ(json_of(run_binary("generate --prompt -" + flags, piped("two\\nlines\\n")))["output"], expected);
  for (const auto& [input, part] : std::initializer_list<std::pair<std::string, std::string>>{
           {piped(""), "--prompt -: standard input is empty"},
           {piped("ab\\303("), "--prompt -: standard input: byte 2 is not UTF-8 (0xc3)"},
           {"head -c 17000000 /dev/zero |", "has more than 16777216 bytes"}}) {
    const Outcome o = run_binary("generate --prompt -" + flags, input);
    EXPECT_EQ(o.exit_code, 1);
    EXPECT_EQ(o.err.find('\n'), o.err.size() - 1) << o.err;
    EXPECT_TRUE(has(o.err, part)) << o.err;
  }
}

TEST(GenerateInput, AnAnswerThatWasCutSaysSo) {
  const Model model;
  // This stop token is never drawn.
  const std::string generate = "generate --prompt hi --override eos_token_id=258 --temperature 0 " + model.flags();
  const Outcome cut = run_binary(generate + " --max-new-tokens 3");
  EXPECT_TRUE(has(cut.err, "notice: the answer was cut at --max-new-tokens 3;")) << cut.err;
  const Outcome context = run_binary(generate + " --max-new-tokens 99 --context-length 16");
  EXPECT_TRUE(has(context.err, "notice: the answer was cut at the end of the context, 16 tokens")) << context.err;
  EXPECT_FALSE(has(run_binary(generate + " --max-new-tokens 3 --ignore-eos").err, "cut at"));
}

TEST(QuietStart, TheReportIsForThoseWhoAsk) {
  const Model model;
  const std::string generate = "generate --prompt hi --max-new-tokens 1 --ignore-eos " + model.flags();
  const Outcome quiet = run_binary(generate);
  EXPECT_EQ(std::count(quiet.err.begin(), quiet.err.end(), '\n'), 1) << quiet.err;
  for (const char* flag : {" -v", " --verbose", " --log-level info"}) {
    const Outcome o = run_binary(generate + flag);
    EXPECT_TRUE(has(o.err, "prefill chunk") && has(o.err, "captured in")) << flag << o.err;
  }
  // What is not honoured is said all the same.
  EXPECT_TRUE(has(run_binary(generate + " --trust-remote-code").err, "notice: --trust-remote-code")) << quiet.err;
  EXPECT_EQ(run_binary(generate + " --log-level warning").err, "");
  const Outcome both = run_binary(generate + " -v --log-level error");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_TRUE(has(both.err, "--verbose is --log-level info")) << both.err;
}

// The file decides in the terminal as it does in the server, whether do_sample stands in it or not.
TEST(SamplingDefaults, AreThePublishersElseTheField) {
  const auto with = [](const char* json) {
    const auto read = checkpoint::parse_generation_config(Json::parse(json), "generation_config.json");
    EXPECT_TRUE(read.is_ok());
    return SamplingSettings().params(*read, 0);
  };
  EXPECT_EQ(with("{}").temperature, 1);
  EXPECT_EQ(with("{}").top_p, 1);
  EXPECT_EQ(with(R"({"temperature": 0.6, "top_k": 20})").temperature, 0.6);
  EXPECT_EQ(with(R"({"temperature": 0.6, "top_k": 20})").top_k, 20);
  EXPECT_EQ(with(R"({"do_sample": false, "temperature": 0.6})").temperature, 0);
  SamplingSettings flags;
  flags.temperature = 0.3;
  EXPECT_EQ(flags.params({}, 0).temperature, 0.3);
}

// Greedy because the file says so; at temperature 1 the two would draw with different seeds.
TEST(SamplingDefaults, TheServerHasThoseOfTheTerminal) {
  const Model model;
  model.folder.write("generation_config.json", R"({"do_sample": false})");
  Server server(model, "");
  ASSERT_NE(server.port(), 0) << server.said();
  const testing_support::HttpAnswer a =
      testing_support::HttpClient(server.port())
          .post("/v1/completions", R"({"prompt": "hi", "max_tokens": 20, "return_token_ids": true})");
  ASSERT_EQ(a.status, 200) << a.body;
  EXPECT_EQ(
      OrderedJson::parse(a.body)["choices"][0]["token_ids"],
      json_of(run_binary("generate --json --prompt hi --max-new-tokens 20 " + model.flags()))["output"]["token_ids"]);
}

mode_t mode_of(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0);
  return st.st_mode & 0777;
}

TEST(ChatHistory, IsKeptForItsOwnerAndBounded) {
  const Folder folder;
  const std::string path = folder / "deep/er/history";
  {
    History history(path);
    ASSERT_TRUE(history.load().is_ok());
    for (const char* text : {"one", "two\nlines", "two\nlines", "日本"}) EXPECT_TRUE(history.add(text).is_ok());
  }
  EXPECT_EQ(mode_of(path), 0600u);
  History again(path);
  ASSERT_TRUE(again.load().is_ok());
  EXPECT_EQ(again.messages(), (std::vector<std::string>{"one", "two\nlines", "日本"}));
  // Others' damage costs what was damaged, and its mode is put right.
  std::ofstream(path, std::ios::app) << "{half a li\n\"good\"\n";
  std::filesystem::permissions(path, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  ASSERT_TRUE(again.load().is_ok());
  EXPECT_EQ(again.messages().back(), "good");
  EXPECT_EQ(mode_of(path), 0600u);
  // Its size has a bound, and so have the messages in memory; one that is too long is not kept.
  for (int i = 0; i < 1200; ++i) EXPECT_TRUE(again.add(fmt::format("{}{:01000}", i, 0)).is_ok());
  EXPECT_LE(std::filesystem::file_size(path), History::kMostBytes + 2000);
  EXPECT_EQ(again.messages().size(), History::kMostMessages);
  EXPECT_TRUE(again.add(std::string(History::kLongestMessage + 1, 'x')).is_ok());
  History last(path);
  ASSERT_TRUE(last.load().is_ok());
  EXPECT_EQ(last.messages().back(), fmt::format("1199{:01000}", 0));
  EXPECT_LE(last.messages().size(), History::kMostMessages);
  History nowhere("/proc/no/such");
  EXPECT_FALSE(nowhere.load().is_ok());
  EXPECT_TRUE(nowhere.add("kept in memory").is_ok());
}

TEST(ChatHistory, SessionsDoNotLoseEachOthersMessages) {
  const Folder folder;
  std::vector<std::thread> sessions;
  for (int s = 0; s < 4; ++s)
    sessions.emplace_back([&, s] {
      History history(folder / "history");
      EXPECT_TRUE(history.load().is_ok());
      for (int i = 0; i < 100; ++i) EXPECT_TRUE(history.add(fmt::format("{} {}", s, i)).is_ok());
    });
  for (auto& t : sessions) t.join();
  History all(folder / "history");
  ASSERT_TRUE(all.load().is_ok());
  EXPECT_EQ(all.messages().size(), 400u);
}

TEST(ChatKeys, OneFormForEachAndNothingOfTheOthers) {
  const auto decoded = [](const std::string& bytes) {
    KeyDecoder keys;
    std::wstring out;
    for (char c : bytes) keys.push(c);
    while (const auto key = keys.pop()) out += *key;
    return out;
  };
  EXPECT_EQ(decoded("aé日😀"), L"aé日😀");
  EXPECT_EQ(decoded("a\xff\xc3(\xe6\x97z"), L"a(z");
  for (const char* up : {"\033[A", "\033OA", "\033[1;2A"}) EXPECT_EQ(decoded(up), L"\033[A") << up;
  for (const char* home : {"\033[H", "\033OH", "\033[1~", "\033[7~"}) EXPECT_EQ(decoded(home), L"\033[H") << home;
  for (const char* back : {"\033[1;5D", "\033[1;3D", "\033b", "\033O5D"}) EXPECT_EQ(decoded(back), L"\033b") << back;
  for (const char* row : {"\033\r", "\033[13;2u", "\033[27;2;13~"}) EXPECT_EQ(decoded(row), L"\033\r") << row;
  for (const char* other : {"\033[15~", "\033OP", "\033[[A", "\033[I", "\033[5;2~", "\033[?1;2c"})
    EXPECT_EQ(decoded(std::string(other) + "x"), L"x") << other + 1;
  EXPECT_EQ(decoded("\033[200~a\r\033[201~"), L"\033[200~a\r\033[201~");
}

TEST(ChatCommands, AreReadAndCompleted) {
  const auto parsed = parse_command("/system  Be brief. ");
  ASSERT_TRUE(parsed.is_ok() && *parsed);
  EXPECT_EQ((*parsed)->argument, "Be brief.");
  EXPECT_EQ(parse_command("/quit")->value().command, ChatCommand::Exit);
  EXPECT_FALSE(parse_command("what is /help?")->has_value());
  EXPECT_FALSE(parse_command("//etc")->has_value());
  EXPECT_EQ(unescaped("//etc"), "/etc");
  EXPECT_EQ(unescaped("a//b"), "a//b");
  EXPECT_EQ(complete_command("/st").choices, std::vector<std::string>{"/stats"});
  EXPECT_EQ(complete_command("/lo").choices, std::vector<std::string>{"/load "});
  EXPECT_TRUE(complete_command("/help ").choices.empty());
  EXPECT_TRUE(complete_command("he").choices.empty());
  const Folder folder;
  folder.write("talk one.json", "");
  const Completion files = complete_command("/load " + (folder / "ta"));
  EXPECT_EQ(files.choices, std::vector<std::string>{"talk one.json"});
  EXPECT_EQ(files.begin, std::string("/load ").size() + (folder / "").size());
}

TEST(ChatConversation, FilesAreCheckedAndNotOverwritten) {
  const Folder folder;
  const auto problem = [&](const std::string& content) {
    folder.write("file", content);
    const auto loaded = Conversation::load(folder / "file");
    return loaded ? "" : loaded.status().message();
  };
  EXPECT_TRUE(has(problem("{"), "not valid JSON"));
  EXPECT_TRUE(has(problem("{\"a\": 1}"), "a list of messages"));
  EXPECT_TRUE(has(problem("[1]"), "messages[0]: an object with \"role\" and \"content\""));
  EXPECT_TRUE(
      has(problem(R"([{"role": "bot", "content": "x"}])"), R"(.role is "bot"; allowed: system, user, assistant)"));
  EXPECT_TRUE(has(problem(R"([{"role": "user", "content": 3}])"), "messages[0].content is number"));
  EXPECT_TRUE(
      has(problem(R"([{"role": "user", "content": [{"type": "image_url"}]}])"), "content[0]: parts other than"));
  EXPECT_TRUE(
      has(problem(R"([{"role": "user", "content": ""}, {"role": "system", "content": ""}])"), "only the first"));
  EXPECT_EQ(problem(R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})"),
            "");

  Conversation c("s");
  c.ask("q");
  c.answer("a");
  folder.write("notes.txt", "mine");
  EXPECT_TRUE(has(c.save(folder / "notes.txt").message(), "it is not replaced"));
  EXPECT_EQ(content_of(folder / "notes.txt"), "mine");
  ASSERT_TRUE(c.save(folder / "c.json").is_ok());
  ASSERT_TRUE(c.save(folder / "c.json").is_ok()) << "its own file may be replaced";
  EXPECT_EQ(Conversation::load(folder / "c.json")->messages(), c.messages());
  c.set_system(std::nullopt);
  EXPECT_EQ(c.messages().size(), 2u);
  c.set_system("t");
  c.forget();
  EXPECT_EQ(c.system(), "t");
  EXPECT_EQ(c.messages().size(), 1u);
}

TEST(TerminalText, ControlCharactersOfAnAnswerDoNothing) {
  EXPECT_EQ(visible("a\033[2Jb\r\n\tc\x7f\xc2\x9b é日"), "a^[[2Jb\n\tc^?? é日");
}

}  // namespace
}  // namespace reprise::apps::chat_test
