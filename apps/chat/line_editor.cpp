#include "chat/line_editor.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/terminal.h"
#include "chat/line_layout.h"
#include "text/utf8.h"

namespace reprise::apps {
namespace {

constexpr wchar_t kInterrupt = 3, kSearch = 0x12, kCancel = 7, kBackspace = 8, kDelete = 0x7f;
constexpr wchar_t kUncounted = L'\1';  // around the colours of a prompt
constexpr size_t kLongestPaste = 1 << 20;
// A key that no terminal sends, for actions that end with one of libedit's own.
constexpr const wchar_t* kEndLine = L"\033[999~";

LineEditor* g_line_editor = nullptr;  // libedit's calls do not say whose they are without a call back into it

std::wstring wide(std::string_view utf8) {
  std::string valid;
  text::append_repaired_utf8(utf8, true, &valid);
  std::wstring out;
  for (size_t at = 0; at < valid.size();) {
    const text::CodePoint c = text::code_point_at(valid, at);
    if (c.value != 0) out += static_cast<wchar_t>(c.value);
    at += c.size;
  }
  return out;
}

std::string narrow(std::wstring_view text) {
  std::string out;
  for (wchar_t c : text) text::append_utf8(static_cast<char32_t>(c), &out);
  return out;
}

int window_columns() {
  winsize w{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col : 80;
}

// The locale of this thread for as long as it lives: libedit asks it for widths and writes in it.
class LocaleScope {
 public:
  explicit LocaleScope(locale_t locale) : before_(::uselocale(locale)) {}
  ~LocaleScope() { ::uselocale(before_); }

 private:
  locale_t before_;
};

}  // namespace

Result<std::unique_ptr<LineEditor>> LineEditor::open(TerminalSession& terminal, History& history, Completer completer) {
  const char* name = std::getenv("TERM");
  if (!name || !*name || std::string_view(name) == "dumb")
    return error(Code::Unsupported, "TERM says that this terminal has no cursor to move");
  ASSIGN_OR_RETURN(const Libedit library, Libedit::open());
  std::unique_ptr<LineEditor> editor(new LineEditor(library, terminal, history, std::move(completer)));
  RETURN_IF_ERROR(editor->start());
  return editor;
}

Status LineEditor::start() {
  utf8_ = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  complaints_ = std::fopen("/dev/null", "we");
  if (!utf8_ || !complaints_) return error(Code::Unsupported, "the locale C.UTF-8 or /dev/null is missing");
  const LocaleScope locale(utf8_);
  editor_ = lib_.init("reprise", stdin, stdout, complaints_);
  if (!editor_) return error(Code::Unsupported, "libedit could not start");
  g_line_editor = this;
  // A terminal that is not in the machine's database is most likely one like xterm.
  if (lib_.set(editor_, EL_TERMINAL, static_cast<const char*>(nullptr)) != 0 &&
      lib_.set(editor_, EL_TERMINAL, "xterm") != 0 && lib_.set(editor_, EL_TERMINAL, "vt100") != 0)
    return error(Code::Unsupported, "no terminal of this machine's database is like {}", std::getenv("TERM"));
  // Between two messages keys stay hidden, as TerminalSession has them while an answer streams.
  lib_.set(editor_, EL_SETTY, L"-x", L"-icanon", L"-echo", static_cast<const wchar_t*>(nullptr));
  lib_.set(editor_, EL_EDITOR, L"emacs");
  lib_.set(editor_, EL_PROMPT_ESC, &LineEditor::prompt_of, static_cast<int>(kUncounted));
  lib_.set(editor_, EL_GETCFN, &LineEditor::key_of);

  add_action<&LineEditor::enter>(L"chat-enter");
  add_action<&LineEditor::new_line>(L"chat-new-line");
  add_action<&LineEditor::up>(L"chat-up");
  add_action<&LineEditor::down>(L"chat-down");
  add_action<&LineEditor::paste>(L"chat-paste");
  add_action<&LineEditor::search>(L"chat-search");
  add_action<&LineEditor::complete>(L"chat-complete");
  add_action<&LineEditor::interrupt>(L"chat-interrupt");
  for (const auto& [key, action] : std::initializer_list<std::pair<const wchar_t*, const wchar_t*>>{
           {L"^M", L"chat-enter"},
           {L"^J", L"chat-enter"},
           {L"\\e^M", L"chat-new-line"},
           {L"\\e^J", L"chat-new-line"},
           {L"\\e[A", L"chat-up"},
           {L"^P", L"chat-up"},
           {L"\\e[B", L"chat-down"},
           {L"^N", L"chat-down"},
           {L"\\e[200~", L"chat-paste"},
           {L"^R", L"chat-search"},
           {L"^I", L"chat-complete"},
           {L"^C", L"chat-interrupt"},
           {L"\\e[999~", L"ed-newline"},
           {L"\\e[C", L"ed-next-char"},
           {L"\\e[D", L"ed-prev-char"},
           {L"\\e[H", L"ed-move-to-beg"},
           {L"\\e[F", L"ed-move-to-end"},
           {L"\\e[3~", L"ed-delete-next-char"},
           {L"^W", L"ed-delete-prev-word"},
           {L"^U", L"vi-kill-line-prev"},
           // libedit leaves these out where letters beyond ASCII can be typed.
           {L"\\eb", L"ed-prev-word"},
           {L"\\ef", L"em-next-word"},
           {L"\\ed", L"em-delete-next-word"},
           {L"\\e^?", L"ed-delete-prev-word"},
           {L"\\e^H", L"ed-delete-prev-word"},
       })
    bind(key, action);
  terminal_.mark_pastes();
  return Status::ok();
}

wchar_t* LineEditor::prompt_of(EditLine*) { return g_line_editor->prompt_.data(); }

int LineEditor::key_of(EditLine*, wchar_t* key) { return g_line_editor->read_key(key); }

LineEditor::~LineEditor() {
  if (editor_) {
    const LocaleScope locale(utf8_);
    lib_.end(editor_);
  }
  if (complaints_) std::fclose(complaints_);
  if (utf8_) ::freelocale(utf8_);
}

void LineEditor::bind(const wchar_t* key, const wchar_t* action) {
  lib_.set(editor_, EL_BIND, key, action, static_cast<const wchar_t*>(nullptr));
}

template <LineEditor::Action action>
void LineEditor::add_action(const wchar_t* name) {
  unsigned char (*function)(EditLine*, wint_t) = [](EditLine*, wint_t) { return (g_line_editor->*action)(); };
  lib_.set(editor_, EL_ADDFN, name, L"", function);
}

Result<NextMessage> LineEditor::read() {
  const LocaleScope locale(utf8_);
  interrupted_ = typed_ = false;
  changed_.clear();
  at_ = history_.messages().size();
  set_prompt();
  int count = 0;
  const wchar_t* line = lib_.gets(editor_, &count);
  std::wstring typed = line && count > 0 ? std::wstring(line, static_cast<size_t>(count)) : std::wstring();
  if (typed.empty()) return NextMessage{};
  while (!typed.empty() && (typed.back() == L'\n' || typed.back() == L'\r')) typed.pop_back();
  if (interrupted_) return NextMessage{NextMessage::Kind::Interrupted, narrow(typed), typed_};
  NextMessage message{NextMessage::Kind::Message, narrow(typed)};
  if (message.text.find_first_not_of(" \n\t") != std::string::npos)
    if (const Status kept = history_.add(message.text); !kept.is_ok())
      log::warning("{}; the history ends with this session", kept.message());
  return message;
}

int LineEditor::read_key(wchar_t* key) {
  for (;;) {
    if (const auto ready = keys_.pop()) {
      *key = *ready;
      typed_ = true;
      return 1;
    }
    switch (terminal_.wait()) {
      case TerminalSession::Event::Interrupted: *key = kInterrupt; return 1;
      case TerminalSession::Event::Resumed: draw_from(0); continue;
      case TerminalSession::Event::Resized: {
        // Most terminals have wrapped the line anew by now.
        const int above = rows_above_cursor();
        lib_.resize(editor_);
        draw_from(above);
        continue;
      }
      case TerminalSession::Event::Input: break;
    }
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return 0;
    keys_.push(byte);
  }
}

unsigned char LineEditor::enter() {
  const std::wstring now = text();
  if (now.empty() || now.back() != L'\\') {
    lib_.push(editor_, kEndLine);
    return CC_NORM;
  }
  lib_.cursor(editor_, static_cast<int>(now.size() - cursor()));
  lib_.delete_before(editor_, 1);
  return new_line();
}

unsigned char LineEditor::new_line() {
  lib_.insert(editor_, L"\n");
  return CC_REFRESH;
}

unsigned char LineEditor::up() {
  const std::wstring now = text();
  const size_t here = cursor();
  const size_t begin = here == 0 ? std::wstring::npos : now.rfind(L'\n', here - 1);
  if (begin == std::wstring::npos) return go_in_history(true);
  const size_t before = begin == 0 ? std::wstring::npos : now.rfind(L'\n', begin - 1);
  const size_t row = before == std::wstring::npos ? 0 : before + 1;
  const size_t target = std::min(row + (here - begin - 1), begin);
  lib_.cursor(editor_, static_cast<int>(target) - static_cast<int>(here));
  return CC_REFRESH;
}

unsigned char LineEditor::down() {
  const std::wstring now = text();
  const size_t here = cursor(), next = now.find(L'\n', here);
  if (next == std::wstring::npos) return go_in_history(false);
  const size_t begin = here == 0 ? std::wstring::npos : now.rfind(L'\n', here - 1);
  const size_t column = begin == std::wstring::npos ? here : here - begin - 1;
  const size_t target = std::min(next + 1 + column, std::min(now.find(L'\n', next + 1), now.size()));
  lib_.cursor(editor_, static_cast<int>(target) - static_cast<int>(here));
  return CC_REFRESH;
}

unsigned char LineEditor::go_in_history(bool back) {
  if (back ? at_ == 0 : at_ == history_.messages().size()) return CC_ERROR;
  changed_[at_] = text();
  at_ = back ? at_ - 1 : at_ + 1;
  set_text(history_at(at_));
  return CC_REFRESH;
}

std::wstring LineEditor::history_at(size_t index) const {
  if (const auto changed = changed_.find(index); changed != changed_.end()) return changed->second;
  return index < history_.messages().size() ? wide(history_.messages()[index]) : std::wstring();
}

unsigned char LineEditor::paste() {
  static constexpr std::wstring_view kEnd = L"\033[201~";
  std::wstring pasted, end;
  size_t dropped = 0;
  wchar_t before = 0;
  for (wchar_t c = 0; end != kEnd; before = c) {
    if (lib_.getc(editor_, &c) != 1) return CC_EOF;
    if (c == kInterrupt) return interrupt();
    if (c == kEnd[end.size()]) {
      end += c;
      continue;
    }
    end.clear();
    // Terminals send CR where the text had a newline, and some of them CR LF; libedit's settings swap the two.
    const bool breaks = c == L'\r' || c == L'\n';
    if (breaks && (before == L'\r' || before == L'\n') && before != c) {
      c = 0;
      continue;
    }
    if (!breaks && c != L'\t' && (c < L' ' || c == kDelete)) continue;
    if (pasted.size() < kLongestPaste)
      pasted += breaks ? L'\n' : c;
    else
      ++dropped;
  }
  if (dropped > 0) {
    say(fmt::format("{} characters were pasted; at most {} are taken. Longer text can come from a pipe.",
                    pasted.size() + dropped, kLongestPaste));
    return CC_NORM;
  }
  lib_.insert(editor_, pasted.c_str());
  return CC_REFRESH;
}

unsigned char LineEditor::search() {
  const std::wstring before = text();
  std::wstring pattern;
  size_t found = at_;
  // The newest message below `from` that has the pattern, if there is one.
  const auto find_below = [&](size_t from) {
    for (size_t i = from; i-- > 0;)
      if (history_at(i).find(pattern) != std::wstring::npos) {
        found = i;
        return true;
      }
    return false;
  };
  changed_[at_] = before;
  for (;;) {
    const int above = rows_above_cursor();
    set_prompt(pattern.empty() ? L"search" : L"search: " + pattern);
    set_text(history_at(found));
    draw_from(above);
    wchar_t key = 0;
    if (lib_.getc(editor_, &key) != 1) return CC_EOF;
    if (key == kCancel || key == kInterrupt) {
      found = at_;
      break;
    }
    if (key == kSearch) {
      if (!pattern.empty()) find_below(found);
    } else if (key == kBackspace || key == kDelete) {
      if (!pattern.empty()) pattern.pop_back();
      if (pattern.empty() || !find_below(history_.messages().size())) found = at_;
    } else if (key < L' ') {
      // Takes what was found, and the key does what it does.
      lib_.push(editor_, std::wstring(1, key).c_str());
      break;
    } else {
      pattern += key;
      if (!find_below(std::min(found + 1, history_.messages().size()))) {
        pattern.pop_back();
        std::fputc('\a', stdout);
      }
    }
  }
  const int above = rows_above_cursor();
  at_ = found;
  set_prompt();
  set_text(history_at(found));
  draw_from(above);
  return CC_NORM;
}

unsigned char LineEditor::complete() {
  const std::string before = narrow(text().substr(0, cursor()));
  const Completion c = completer_(before);
  if (c.choices.empty()) return CC_ERROR;
  std::string common = c.choices.front();
  for (const std::string& choice : c.choices) {
    size_t n = 0;
    while (n < std::min(common.size(), choice.size()) && common[n] == choice[n]) ++n;
    while (n < common.size() && n > 0 && (common[n] & 0xc0) == 0x80) --n;  // not within a character
    common.resize(n);
  }
  const size_t typed = before.size() - c.begin;
  if (common.size() > typed) {
    lib_.insert(editor_, wide(common.substr(typed)).c_str());
    return CC_REFRESH;
  }
  list(c.choices);
  return CC_NORM;
}

void LineEditor::list(const std::vector<std::string>& choices) {
  int width = 1;
  for (const std::string& choice : choices) width = std::max(width, columns_of(wide(choice)) + 2);
  const int per_row = std::max(1, window_columns() / width);
  std::string out;
  for (size_t i = 0; i < choices.size(); ++i) {
    const bool last = i + 1 == choices.size() || (static_cast<int>(i) + 1) % per_row == 0;
    out += choices[i];
    out += last ? "\n" : std::string(static_cast<size_t>(width - columns_of(wide(choices[i]))), ' ');
  }
  out.pop_back();
  say(out);
}

// A text below the line, which stands below it then.
void LineEditor::say(const std::string& said) {
  const LinePlace place = place_of(text(), cursor(), prompt_columns_, window_columns());
  std::fputs(std::string(static_cast<size_t>(place.rows - place.cursor_row), '\n').c_str(), stdout);
  std::fprintf(stdout, "%s\n", said.c_str());
  draw_from(0);
}

unsigned char LineEditor::interrupt() {
  interrupted_ = true;
  if (const std::wstring given_up = text(); !given_up.empty()) {
    const int above = rows_above_cursor();
    lib_.cursor(editor_, static_cast<int>(given_up.size() - cursor()));
    draw_from(above);
    std::fputs("^C", stdout);
  }
  lib_.push(editor_, kEndLine);
  return CC_NORM;
}

std::wstring LineEditor::text() const {
  const LineInfoW* line = lib_.line(editor_);
  return {line->buffer, line->lastchar};
}

size_t LineEditor::cursor() const {
  const LineInfoW* line = lib_.line(editor_);
  return static_cast<size_t>(line->cursor - line->buffer);
}

void LineEditor::set_text(const std::wstring& wanted) {
  const size_t size = text().size();
  lib_.cursor(editor_, static_cast<int>(size - cursor()));
  lib_.delete_before(editor_, static_cast<int>(size));
  if (!wanted.empty()) lib_.insert(editor_, wanted.c_str());
}

void LineEditor::set_prompt(const std::wstring& search) {
  const std::wstring sign = search.empty() ? L">" : L"(" + search + L")";
  const std::wstring colour = wide(coloured(Colour::Green, "\1", stdout));
  prompt_columns_ = columns_of(sign) + 1;
  const size_t mark = colour.find(kUncounted);
  if (colour.size() == 1) {
    prompt_ = sign + L" ";
  } else {
    // libedit loses colours behind the last character, so that the blank comes last.
    prompt_ = kUncounted + colour.substr(0, mark) + kUncounted + sign + kUncounted + colour.substr(mark + 1) +
              kUncounted + L" ";
  }
}

int LineEditor::rows_above_cursor() const {
  return place_of(text(), cursor(), prompt_columns_, window_columns()).cursor_row;
}

void LineEditor::draw_from(int rows_above) {
  const std::string up = rows_above > 0 ? fmt::format("\033[{}A", rows_above) : std::string();
  std::fprintf(stdout, "\r%s\033[J", up.c_str());
  lib_.set(editor_, EL_REFRESH);
}

}  // namespace reprise::apps
