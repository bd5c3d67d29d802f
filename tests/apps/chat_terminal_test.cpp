// `reprise chat` in a terminal: keys are typed, and the screen and the history tell what became of them.
#include "apps/serving.h"
#include "chat/history.h"
#include "pseudo_terminal.h"

namespace reprise::apps::chat_terminal_test {
namespace {

constexpr const char* kUp = "\033[A";
constexpr const char* kLeft = "\033[D";
constexpr const char* kHint = "Ctrl-C once more ends";

// A conversation with a small model of random weights, whose answers are nonsense of a few tokens.
struct TypedChat {
  explicit TypedChat(const std::string& flags = "--max-new-tokens 3", const std::string& before = {}, int columns = 80,
                     int64_t positions = 512)
      : model(positions),
        terminal(fmt::format("chat {} --ignore-eos --max-running-requests 2 --history {} {}", model.flags(),
                             model.folder / "history", flags),
                 "NO_COLOR=1 " + before, columns) {
    EXPECT_TRUE(terminal.sees_prompt()) << terminal.shown();
  }
  // Types a line and waits for its answer.
  void ask(const std::string& keys) {
    terminal.type(keys + "\r");
    EXPECT_TRUE(terminal.sees("first token after")) << terminal.shown();
    EXPECT_TRUE(terminal.sees_prompt()) << terminal.shown();
  }
  bool shows(const std::vector<std::string>& last_rows) {
    return terminal.until([&] { return terminal.screen().last_rows(last_rows.size()) == last_rows; });
  }
  std::vector<std::string> messages() const {
    History history(model.folder / "history");
    EXPECT_TRUE(history.load().is_ok());
    return history.messages();
  }
  void end() {
    terminal.type("\x04");
    EXPECT_EQ(terminal.wait(), 0) << terminal.shown();
    EXPECT_TRUE(terminal.is_as_found());
    EXPECT_FALSE(terminal.screen().marks_pastes());
  }

  Model model;
  PseudoTerminal terminal;
};

using Typed = std::vector<std::string>;

TEST(ChatTerminal, LinesAreEditedAndComeBack) {
  TypedChat chat;
  EXPECT_NE(chat.terminal.shown().find("/help lists the commands"), std::string::npos);
  EXPECT_TRUE(chat.terminal.screen().marks_pastes());
  chat.ask(std::string("hllo world") + "\x01" + "\033[C" + "e" + "\x05" + "!");
  chat.ask(std::string(kUp) + kLeft + "\x0b" + ", again");
  chat.ask("three words here\033b\033b\x17only ");
  chat.ask(std::string(kUp) + kUp + kUp);
  chat.ask("\x12word\x12");  // the second newest that has it
  EXPECT_EQ(chat.messages(),
            (Typed{"hello world!", "hello world, again", "only words here", "hello world!", "only words here"}));
  chat.end();
}

TEST(ChatTerminal, SessionsShareTheHistory) {
  TypedChat chat;
  History other(chat.model.folder / "history");
  EXPECT_TRUE(other.load().is_ok());
  chat.ask("typed here");
  EXPECT_TRUE(other.add("typed there").is_ok());
  chat.ask("here again");
  EXPECT_EQ(chat.messages(), (Typed{"typed here", "typed there", "here again"}));
  chat.end();
}

TEST(ChatTerminal, PastedLinesAreOneMessage) {
  TypedChat chat;
  chat.terminal.type("see \033[200~one\r\ttwo\r\033[31mthree\033[201~");
  EXPECT_TRUE(chat.shows(Typed{"> see one", "        two", "three"})) << chat.terminal.shown();
  chat.ask("!");
  EXPECT_EQ(chat.messages(), (Typed{"see one\n\ttwo\nthree!"}));
  chat.end();
}

TEST(ChatTerminal, SeveralLines) {
  TypedChat chat;
  chat.ask("one\\\rtwo\033\rthree");
  // Up goes to the line above before it goes to earlier messages.
  chat.ask(std::string(kUp) + kUp + "X");
  EXPECT_EQ(chat.messages(), (Typed{"one\ntwo\nthree", "one\ntwoX\nthree"}));
  chat.end();
}

TEST(ChatTerminal, CtrlCStopsTheAnswerAndThenTheProgram) {
  TypedChat chat("--max-new-tokens 60000 --max-total-tokens 70000", "", 80, 65536);
  chat.terminal.type("go on\r");
  EXPECT_TRUE(chat.terminal.until([&] { return chat.terminal.seen().size() > 200; })) << chat.terminal.shown();
  EXPECT_EQ(chat.terminal.settings().c_lflag & (ECHO | ICANON), 0u);
  chat.terminal.type("not-to-be-seen\x03");
  EXPECT_TRUE(chat.terminal.sees("; stopped")) << chat.terminal.shown();
  EXPECT_TRUE(chat.terminal.sees_prompt()) << chat.terminal.shown();
  EXPECT_EQ(chat.terminal.shown().find("not-to-be-seen"), std::string::npos);
  // A line that is given up is no reason to end.
  chat.terminal.type("half a line");
  EXPECT_TRUE(chat.terminal.sees_prompt("half a line"));
  chat.terminal.type("\x03");
  EXPECT_TRUE(chat.terminal.sees_prompt()) << chat.terminal.shown();
  EXPECT_EQ(chat.terminal.shown().find(kHint), std::string::npos);
  chat.terminal.type("\x03");
  EXPECT_TRUE(chat.terminal.sees(kHint)) << chat.terminal.shown();
  EXPECT_TRUE(chat.terminal.sees_prompt());
  chat.terminal.type("\x03");
  EXPECT_EQ(chat.terminal.wait(), 0);
  EXPECT_TRUE(chat.terminal.is_as_found());
  EXPECT_EQ(chat.messages(), (Typed{"go on"}));
}

TEST(ChatTerminal, KeysTypedMeanwhileWaitForThePrompt) {
  TypedChat chat("--max-new-tokens 500 --max-total-tokens 1024", "", 80, 1024);
  chat.terminal.type("first\r");
  EXPECT_TRUE(chat.terminal.until([&] { return chat.terminal.seen().size() > 100; })) << chat.terminal.shown();
  chat.terminal.type("the next one");
  EXPECT_TRUE(chat.terminal.sees_prompt("the next one")) << chat.terminal.shown();
  EXPECT_NE(chat.terminal.seen().find("; cut at --max-new-tokens 500"), std::string::npos);
  chat.terminal.type("\x15");
  EXPECT_TRUE(chat.terminal.sees_prompt());
  chat.end();
}

TEST(ChatTerminal, WideCharactersInANarrowWindow) {
  TypedChat chat("--max-new-tokens 3", "", 20);
  // Nine wide ones fill the first row behind the prompt; the tenth would be cut.
  chat.terminal.type("日本語日本語日本語a日本");
  EXPECT_TRUE(chat.shows(Typed{"> 日本語日本語日本語", "a日本"})) << chat.terminal.shown();
  chat.terminal.type(std::string("\x7f") + kLeft + kLeft + "\x7f" + "é");
  EXPECT_TRUE(chat.shows(Typed{"> 日本語日本語日本éa", "日"})) << chat.terminal.shown();
  chat.terminal.type("\r");
  EXPECT_TRUE(chat.terminal.sees("after")) << chat.terminal.shown();
  EXPECT_EQ(chat.messages(), (Typed{"日本語日本語日本éa日"}));
}

TEST(ChatTerminal, ANewSizeDrawsTheLineAgain) {
  TypedChat chat;
  chat.terminal.type("a line of a few words");
  EXPECT_TRUE(chat.terminal.sees_prompt("a line of a few words"));
  chat.terminal.type("");
  chat.terminal.resize(60);
  EXPECT_TRUE(chat.terminal.sees("> a line of a few words")) << chat.terminal.shown();
  chat.ask(" more");
  EXPECT_EQ(chat.messages(), (Typed{"a line of a few words more"}));
  chat.end();
}

TEST(ChatTerminal, SignalsGiveTheTerminalBack) {
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    TypedChat chat;
    EXPECT_FALSE(chat.terminal.is_as_found());
    chat.terminal.signal(number);
    EXPECT_EQ(chat.terminal.wait(), 128 + number);
    EXPECT_TRUE(chat.terminal.is_as_found()) << number;
    EXPECT_FALSE(chat.terminal.screen().marks_pastes()) << number;
  }
}

TEST(ChatTerminal, CommandsAreCompletedAndObeyed) {
  TypedChat chat;
  chat.terminal.type("/s\t");
  EXPECT_TRUE(chat.terminal.sees("/system")) << chat.terminal.shown();
  EXPECT_TRUE(chat.terminal.sees_prompt("/s"));
  chat.terminal.type(std::string("y\t") + "Be brief.\r");
  EXPECT_TRUE(chat.terminal.sees_prompt()) << chat.terminal.shown();
  chat.ask("hi");
  const std::string file = chat.model.folder / "conversation.json";
  chat.terminal.type("/save " + file + "\r");
  EXPECT_TRUE(chat.terminal.sees("3 messages written to")) << chat.terminal.shown();
  const OrderedJson saved = OrderedJson::parse(content_of(file));
  EXPECT_EQ(saved["messages"][0], (OrderedJson{{"role", "system"}, {"content", "Be brief."}}));
  EXPECT_EQ(saved["messages"][1], (OrderedJson{{"role", "user"}, {"content", "hi"}}));
  EXPECT_EQ(saved["messages"][2]["role"], "assistant");
  chat.terminal.type("/load " + chat.model.folder.path() + "/conv\t\r");
  EXPECT_TRUE(chat.terminal.sees("3 messages read from")) << chat.terminal.shown();
  chat.terminal.type("/rest\r");
  EXPECT_TRUE(chat.terminal.sees("close names: /reset")) << chat.terminal.shown();
  chat.terminal.type("/stats\r");
  EXPECT_TRUE(chat.terminal.sees("sampling")) << chat.terminal.shown();
  chat.ask("/regen");
  chat.terminal.type("/exit\r");
  EXPECT_EQ(chat.terminal.wait(), 0);
  EXPECT_TRUE(chat.terminal.is_as_found());
}

TEST(ChatTerminal, LinesArePlainWhereTheyCannotBeEdited) {
  TypedChat chat("--max-new-tokens 3", "TERM=dumb");
  EXPECT_NE(chat.terminal.shown().find("notice: lines cannot be edited: "), std::string::npos) << chat.terminal.shown();
  EXPECT_TRUE(chat.terminal.is_as_found());
  chat.terminal.type("hi\r");
  EXPECT_TRUE(chat.terminal.sees("first token after")) << chat.terminal.shown();
  EXPECT_TRUE(chat.terminal.sees_prompt());
  EXPECT_EQ(chat.terminal.seen().find('\033'), std::string::npos);
  chat.terminal.type("\x03");
  EXPECT_TRUE(chat.terminal.sees(kHint));
  chat.end();
}

}  // namespace
}  // namespace reprise::apps::chat_terminal_test
