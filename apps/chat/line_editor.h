// LineEditor: messages typed in a terminal, with libedit: editing in the middle of a line and of several lines, a
// history that is shared with other sessions, search in it, pasted text as one message, names completed by Tab. It
// works in UTF-8 in every locale of the process. Borrows its parts; one at a time, on the main thread.
#pragma once

#include <locale.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chat/completion.h"
#include "chat/history.h"
#include "chat/key_decoder.h"
#include "chat/libedit.h"
#include "chat/message_source.h"
#include "chat/terminal_session.h"

namespace reprise::apps {

class LineEditor final : public MessageSource {
 public:
  // Fails where the library or a terminal that it can drive is missing.
  static Result<std::unique_ptr<LineEditor>> open(TerminalSession& terminal, History& history, Completer completer);
  ~LineEditor() override;

  Result<NextMessage> read() override;

 private:
  using Action = unsigned char (LineEditor::*)();

  LineEditor(const Libedit& library, TerminalSession& terminal, History& history, Completer completer)
      : lib_(library), terminal_(terminal), history_(history), completer_(std::move(completer)) {}
  Status start();
  void bind(const wchar_t* key, const wchar_t* action);
  template <Action action>
  void add_action(const wchar_t* name);

  static wchar_t* prompt_of(EditLine* editor);
  static int key_of(EditLine* editor, wchar_t* key);
  int read_key(wchar_t* key);

  // What keys do; each answers what libedit does next.
  unsigned char enter();
  unsigned char new_line();
  unsigned char up();
  unsigned char down();
  unsigned char paste();
  unsigned char search();
  unsigned char complete();
  unsigned char interrupt();

  std::wstring text() const;
  size_t cursor() const;
  void set_text(const std::wstring& text);
  void set_prompt(const std::wstring& search = {});
  unsigned char go_in_history(bool back);
  std::wstring history_at(size_t index) const;
  void list(const std::vector<std::string>& choices);
  void say(const std::string& text);
  int rows_above_cursor() const;
  // Draws the line again from `rows_above` the cursor on.
  void draw_from(int rows_above);

  Libedit lib_;
  TerminalSession& terminal_;
  History& history_;
  Completer completer_;
  KeyDecoder keys_;
  FILE* complaints_ = nullptr;  // of libedit
  locale_t utf8_ = nullptr;
  EditLine* editor_ = nullptr;
  std::wstring prompt_;
  int prompt_columns_ = 0;
  bool interrupted_ = false, typed_ = false;
  size_t at_ = 0;                           // in the history; its size is the new line
  std::map<size_t, std::wstring> changed_;  // lines of the history as they were left
};

}  // namespace reprise::apps
