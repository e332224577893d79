//===- Profile.h - the time of a compile by phase ---------------*- C++ -*-===//
//
// Phases follow one another; their parts (a pass, the translation of a module of kernels) may run on several threads
// and in the background of later phases. Both are measured by RAII spans. Times never enter a plan.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_PROFILE_PROFILE_H
#define TCC_COMPILER_PROFILE_PROFILE_H

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tcc {

class Profile {
public:
  struct Row {
    std::string name;
    uint64_t calls = 0;
    double begin = 0, end = 0; ///< of the first call, of the last call; seconds since the profile began
    double cpuSeconds = 0;     ///< of a phase: all threads of the process; of a part: the threads that ran it
    std::vector<Row> parts;    ///< of a phase, in the order in which they began
    double seconds() const { return end - begin; }
  };

  /// Measures from its construction to its destruction, on one thread.
  class Span {
  public:
    Span() = default;
    Span(Span &&other) noexcept;
    Span &operator=(Span &&other) noexcept;
    ~Span() { finish(); }
    void finish();

  private:
    friend class Profile;
    Profile *profile = nullptr;
    std::string phase, part;
    double begin = 0, cpuBegin = 0;
  };

  Profile();

  Span phase(const std::string &name);
  /// Measures a call of a part of a phase; from any thread, also before or after the phase's own span.
  Span part(const std::string &phase, const std::string &name);
  /// The same; does nothing if `profile` is null.
  static Span part(Profile *profile, const std::string &phase, const std::string &name) {
    return profile ? profile->part(phase, name) : Span();
  }

  /// How often something happened: "kernels", "cache hits".
  void count(const std::string &what, uint64_t times = 1);

  /// Phases in the order in which they began.
  std::vector<Row> rows() const;
  std::map<std::string, uint64_t> counts() const;
  /// Processor seconds of the process since it started, loading included.
  static double processCpuSeconds();
  double seconds() const; ///< since the process started, as far as the system tells; else since the profile began

  std::string toTable() const;
  /// {"import": 0.1, …, "profile": {"seconds", "cpu_seconds", "phases": [{"name", "begin", …, "parts"}], "counts"}}:
  /// the seconds of each phase, and all of it.
  std::string toJson() const;

private:
  void add(const Span &span, double end, double cpu);

  mutable std::mutex mutex;
  double start = 0;
  std::vector<Row> phases;
  std::map<std::string, uint64_t> counters;
};

} // namespace tcc

#endif // TCC_COMPILER_PROFILE_PROFILE_H
