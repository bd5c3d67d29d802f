// A small model, and `reprise serve` with it as a process that goes with its test.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "apps/byte_tokenizer.h"
#include "apps/run_binary.h"
#include "support/soon.h"

namespace reprise::apps {

using testing_support::soon;

// A small model of random weights with a tokenizer of bytes and a chat template.
struct Model {
  explicit Model(int64_t positions = 512) {
    const OrderedJson config = {{"architectures", {"LlamaForCausalLM"}},
                                {"model_type", "llama"},
                                {"hidden_size", 64},
                                {"intermediate_size", 128},
                                {"num_hidden_layers", 2},
                                {"num_attention_heads", 4},
                                {"num_key_value_heads", 2},
                                {"vocab_size", 260},
                                {"rms_norm_eps", 1e-5},
                                {"rope_theta", 10000.0},
                                {"max_position_embeddings", positions},
                                {"eos_token_id", 259},
                                {"torch_dtype", "float32"}};
    folder.write("config.json", config.dump());
    folder.write("tokenizer.json", byte_tokenizer().dump());
    folder.write("tokenizer_config.json",
                 R"({"chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"})");
  }
  // Another model, by the flags that name it.
  explicit Model(std::string flags) : given(std::move(flags)) {}
  std::string flags() const {
    if (!given.empty()) return given;
    return fmt::format("--model-path {} --load-format dummy --threads {}", folder.path(), threads);
  }
  Folder folder;
  int threads = 2;
  std::string given;
};

class Server {
 public:
  // `before` is shell text in front of the command; `launcher` a program that starts it.
  Server(const Model& model, const std::string& more, const std::string& before = "",
         const std::string& launcher = "") {
    static int count = 0;
    err_ = model.folder / fmt::format("serve{}.err", count++);
    const std::string command = fmt::format("{} exec {} {} serve {} --port 0 {} 2>{}", before, launcher, REPRISE_BINARY,
                                            model.flags(), more, err_);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it goes with a test that breaks down
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 3000 && port_ == 0; ++i) {
      std::smatch found;
      const std::string said = content_of(err_);
      if (std::regex_search(said, found, std::regex("at http://127.0.0.1:([0-9]+) "))) port_ = std::stoll(found[1]);
      if (said.find(" at unix:") != std::string::npos) return;  // it serves, and has no port
      if (::waitpid(pid_, &status_, WNOHANG) == pid_) {
        pid_ = 0;
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Server() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status_, 0);
    }
  }
  int64_t port() const { return port_; }
  pid_t pid() const { return pid_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::string said() const { return content_of(err_); }
  // What the process holds.
  int64_t descriptors() const {
    const std::filesystem::path folder = fmt::format("/proc/{}/fd", pid_);
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  }
  int64_t resident_bytes() const {
    int64_t pages = 0, resident = 0;
    std::ifstream(fmt::format("/proc/{}/statm", pid_)) >> pages >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
  }
  void signal(int number) { ::kill(pid_, number); }
  // One that does not end within a minute is ended, which its status says.
  int wait() {
    for (int i = 0; pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) != pid_; ++i) {
      if (i == 6000) ::kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = 0;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
  int64_t port_ = 0;
  std::string err_;
};

}  // namespace reprise::apps
