#include "measurement/machine_probe.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "backends/cpu/isa.h"
#include "backends/cpu/thread_pool.h"
#include "backends/sum_order.h"
#include "base/elapsed.h"
#include "base/spin.h"
#include "measurement/peak_loops.h"
#include "measurement/pinned_threads.h"
#include "ranks/processors.h"
#include "settings/setting.h"

namespace reprise::measurement {

using namespace see;

namespace {

constexpr int kTrials = 5;
constexpr double kBudget = 0.4;  // seconds that the trials of one figure may take; two trials always run
constexpr size_t kHugePage = size_t{2} << 20;

// Files under /proc and /sys do not say their size; missing ones are empty.
std::string text_of(const char* path) {
  std::ifstream in(path);
  std::stringstream out;
  out << in.rdbuf();
  return in ? out.str() : std::string();
}

// Processors' worth of time that the control group grants; infinity when there is no limit.
double granted_processors() {
  std::istringstream v2(text_of("/sys/fs/cgroup/cpu.max"));
  double quota = 0, period = 0;
  if (v2 >> quota >> period && quota > 0 && period > 0) return quota / period;  // "max 100000" stops at the word
  std::istringstream q(text_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")),
      p(text_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  if (q >> quota && p >> period && quota > 0 && period > 0) return quota / period;
  return HUGE_VAL;
}

size_t available_memory() {
  std::istringstream in(text_of("/proc/meminfo"));
  for (std::string line; std::getline(in, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  return 0;
}

// The x86-64 kernel names the model; the aarch64 kernel has numbers of the maker and of the part.
std::string cpu_name() {
  std::istringstream in(text_of("/proc/cpuinfo"));
  std::string maker, part;
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.rfind("model name", 0) == 0) return value;
    if (line.rfind("CPU implementer", 0) == 0) maker = value;
    if (line.rfind("CPU part", 0) == 0) part = value;
  }
  if (part.empty()) return "unknown";
  if (maker == "0x48" && part == "0xd01") return "Kunpeng 920";
  return fmt::format("aarch64, implementer {}, part {}", maker, part);
}

// Two counters on lines of their own: the cheapest meeting of two threads.
struct alignas(64) Turn {
  std::atomic<int64_t> value{0};
};

// The smallest of what `trial` answers.
template <typename F>
double least_of(F trial) {
  double best = HUGE_VAL;
  const double begin = steady_seconds();
  for (int i = 0; i < kTrials && (i < 2 || steady_seconds() - begin < kBudget); ++i) best = std::min(best, trial());
  return best;
}

double peak(const PeakLoop& loop, int threads) {
  constexpr int64_t kRounds = 1'000'000;  // some milliseconds
  const auto trial = [&] { return together(threads, [&](int) { loop.run(kRounds); }); };
  trial();  // warms up
  return loop.operations_per_round * kRounds * threads / least_of(trial) / 1e9;
}

double barrier_ns() {
  constexpr int64_t kMeetings = 50'000;
  return least_of([&] {
    Turn flag[2];
    return together(2,
                    [&](int t) {
                      for (int64_t k = 1; k <= kMeetings; ++k) {
                        flag[t].value.store(k, std::memory_order_release);
                        while (flag[1 - t].value.load(std::memory_order_acquire) < k) spin_pause();
                      }
                    }) /
           kMeetings * 1e9;
  });
}

// Seconds of processor time that everything on the allowed processors took so far, steal by other guests included;
// nullopt where /proc/stat cannot be read.
std::optional<double> busy_seconds() {
  const std::vector<int> allowed = cpu::ThreadPool::allowed_processors();
  std::istringstream in(text_of("/proc/stat"));
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::optional<double> sum;
  for (std::string line; std::getline(in, line);) {
    int cpu = 0, at = 0;
    if (std::sscanf(line.c_str(), "cpu%d%n", &cpu, &at) != 1) continue;
    if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) continue;
    std::istringstream fields(line.substr(static_cast<size_t>(at)));
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    if (fields >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal)
      sum = sum.value_or(0) + (user + nice + system + irq + soft + steal) / ticks;
  }
  return sum;
}

double own_seconds() {
  struct rusage used {};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// What others run on the allowed processors between its construction and load().
class LoadMeter {
 public:
  double load() const {
    const auto busy = busy_seconds();
    const double elapsed = steady_seconds() - begin_;
    if (!busy || !busy_ || elapsed <= 0) return 0;
    return std::max(0.0, (*busy - *busy_) - (own_seconds() - own_)) / elapsed;
  }

 private:
  double begin_ = steady_seconds(), own_ = own_seconds();
  std::optional<double> busy_ = busy_seconds();
};

// Three digits are more than the trials agree on.
double rounded(double v) {
  if (!(v > 0)) return 0;
  const double unit = std::pow(10, std::floor(std::log10(v)) - 2);
  return unit < 1 ? std::round(v / unit) / std::round(1 / unit) : std::round(v / unit) * unit;
}

}  // namespace

ReadProbe::ReadProbe(int threads) {
  const long l3 = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  size_ = std::max(size_t{1} << 30, static_cast<size_t>(std::max(l3, 0L)) * 4);
  size_ = std::min(size_, available_memory() / 2) / kHugePage * kHugePage;
  if (size_ == 0) return;
  void* p = ::mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return;
  data_ = static_cast<char*>(p);
  char* aligned = data_ + (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage);
  ::madvise(aligned, size_, MADV_HUGEPAGE);
  // Touched by the threads that will read it, so that it lies near them.
  const size_t part = size_ / static_cast<size_t>(threads);
  together(threads, [&](int t) {
    for (size_t i = 0; i < part; i += 64) aligned[static_cast<size_t>(t) * part + i] = static_cast<char>(i >> 6);
  });
}

ReadProbe::~ReadProbe() {
  if (data_) ::munmap(data_, size_ + kHugePage);
}

double ReadProbe::measure(int threads) const {
  if (!data_) return 0;
  const char* aligned = data_ + (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage);
  const size_t part = size_ / static_cast<size_t>(threads) / 4096 * 4096;
  std::atomic<uint64_t> keep{0};
  const double seconds = least_of([&] {
    return together(threads, [&](int t) { keep += read_all(aligned + static_cast<size_t>(t) * part, part); });
  });
  return static_cast<double>(part) * threads / seconds / 1e9;
}

Machine describe_machine() {
  Machine m;
  m.cpu = cpu_name();
  for (cpu::Isa isa : cpu::supported_isas()) m.isa.emplace_back(cpu::isa_name(isa));
  if (const auto used = cpu::parse_isa("auto"); used.is_ok()) m.isa_used = cpu::isa_name(*used);
  m.order = sum_order_name(DeviceKind::Cpu, m.isa_used);
  m.devices = {"cpu"};
  const int allowed = static_cast<int>(cpu::ThreadPool::allowed_processors().size());
  const double granted = granted_processors();
  m.threads =
      std::max(1, static_cast<int>(std::min<double>(cpu::ThreadPool::usual_threads(), std::floor(granted + 0.01))));
  if (granted < allowed)
    m.warnings.push_back(settings::as_flags(
        fmt::format("the control group grants the time of {:.1f} processors, but {} may be used: run with "
                    "`threads` {}",
                    granted, allowed, m.threads)));
  if (const int nodes = ranks::Processors::allowed().nodes(); nodes > 1)
    m.warnings.push_back(settings::as_flags(fmt::format(
        "the processors lie in {} memory nodes, and half of what a thread reads or more lies far: `tp_size` "
        "{} has a rank with its own weights and cache in each",
        nodes, nodes)));
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (online > allowed)
    m.warnings.push_back(fmt::format("only {} of the {} processors may be used by this process", allowed, online));
  if (text_of("/sys/kernel/mm/transparent_hugepage/enabled").find("[never]") != std::string::npos)
    m.warnings.push_back(
        "transparent huge pages are switched off: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  if (const size_t memory = available_memory(); memory < size_t{2} << 30)
    m.warnings.push_back(fmt::format("only {:.1f} GB of memory are available", static_cast<double>(memory) / 1e9));
  if (text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").rfind("powersave", 0) == 0)
    m.warnings.push_back("the frequency governor is powersave; performance gives steadier figures");
  if (const std::string why = cpu::why_no_amx(); !why.empty())
    m.warnings.push_back("this processor has AMX, and it is not used: " + why);
  const auto built = cpu::built_isas();
  if (m.isa.size() == 1 && std::find(built.begin(), built.end(), cpu::Isa::Avx512) != built.end())
    m.warnings.push_back("no AVX2: the baseline kernels are many times slower");
  const double load = std::strtod(text_of("/proc/loadavg").c_str(), nullptr);
  if (load > 0.5)
    m.warnings.push_back(fmt::format("other programs are running (load average {:.1f}): figures may be low", load));
  return m;
}

MachineSpeed measure_machine(int threads) {
  MachineSpeed s;
  const LoadMeter others;
  {
    const ReadProbe probe(threads);
    s.read_GBps_1 = probe.measure(1);
    s.read_GBps_all = threads == 1 ? s.read_GBps_1 : probe.measure(threads);
  }
  s.fp32_gflops = peak(fp32_loop(), threads);
  const bool tiles = cpu::supported_isas().back() == cpu::Isa::Amx;
  if (have_bf16_dot()) s.bf16_gflops = peak(tiles ? bf16_tile_loop() : bf16_dot_loop(), threads);
  if (have_int8_dot()) s.int8_gops = peak(tiles ? int8_tile_loop() : int8_dot_loop(), threads);
  if (cpu::ThreadPool::allowed_processors().size() >= 2) s.barrier_ns = barrier_ns();
  s.other_load = others.load();
  return s;
}

OrderedJson machine_json(const Machine& machine, const MachineSpeed& speed) {
  const auto or_null = [](const std::optional<double>& v) {
    return v ? OrderedJson(rounded(*v)) : OrderedJson(nullptr);
  };
  OrderedJson j;
  j["cpu"] = machine.cpu;
  j["isa"] = machine.isa;
  j["order"] = machine.order;
  j["threads"] = machine.threads;
  j["read_GBps_1"] = rounded(speed.read_GBps_1);
  j["read_GBps_all"] = rounded(speed.read_GBps_all);
  j["fp32_gflops"] = rounded(speed.fp32_gflops);
  j["bf16_gflops"] = or_null(speed.bf16_gflops);
  j["int8_gops"] = or_null(speed.int8_gops);
  j["barrier_ns"] = or_null(speed.barrier_ns);
  j["devices"] = machine.devices;
  j["warnings"] = machine.warnings;
  if (const std::string why = disturbance(speed); !why.empty()) j["warnings"].push_back(why);
  return j;
}

}  // namespace reprise::measurement
