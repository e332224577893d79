//===- ProfileReport.h - time by kernel, against the roofline ---*- C++ -*-===//
//
// Equal instructions, the same call on the same shapes, count as one kernel. Its least time is the larger of the times
// of its arithmetic and of its traffic at the machine's rates, which are measured on a host and taken from the data
// sheet of a card. The least time divided by the measured time is its share of the roofline. Times are medians over the
// measured steps, instruction by instruction.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TRUN_PROFILEREPORT_H
#define TCC_TOOLS_TRUN_PROFILEREPORT_H

#include "runtime/cpu/Roofline.h"
#include "runtime/train/Profile.h"
#include "tools/common/ExpectedTime.h"
#include "tools/common/InstructionText.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::tools {

struct ProfiledKernel {
  std::string what;
  report::InstructionKind kind = report::InstructionKind::Generated;
  plan::DType dtype = plan::F32;                    ///< whose matmul rate bounds it
  std::vector<std::string> nodes;                   ///< the most telling node of each instruction, in order
  std::vector<std::string> writes;                  ///< state: "parameter", "optimizer", "accumulator"
  uint64_t calls = 0, launches = 0;                 ///< in a step; a call may launch several kernels on a card
  double seconds = 0;                               ///< of a step, all calls
  double flops = 0, bytes = 0;                      ///< of a step, all calls
  double arithmeticSeconds = 0, trafficSeconds = 0; ///< likewise, at the machine's rates; 0 where those are not known
  double expectedSeconds = 0;                       ///< likewise, on a card; with beginnings and ends of launches
  double rooflineSeconds() const { return std::max(arithmeticSeconds, trafficSeconds); }
  double rooflineShare() const { return seconds > 0 ? rooflineSeconds() / seconds : 0; }
};

struct ProfiledInstruction {
  size_t entry = 0, kernel = 0;
  int index = 0;
  uint64_t calls = 1;
  double seconds = 0; ///< of one call
};

/// Instructions of one class on a card.
struct ProfiledClass {
  report::WorkClass kind = report::WorkClass::Elementwise; ///< of a product in slices and its kernels: products
  uint64_t launches = 0;
  double seconds = 0, expectedSeconds = 0; ///< of a step; expected with beginnings and ends of launches
};

struct ProfileReport {
  std::string plan;
  const runtime::Session *session = nullptr;
  const runtime::Profile *profile = nullptr;
  std::optional<runtime::Roofline> roofline; ///< of the host
  report::ChosenCard card;                   ///< for a card instead; neither without a roofline
  unsigned threads = 0;
  double stepSeconds = 0;              ///< median, reading the batch included
  std::vector<ProfiledKernel> kernels; ///< most time first
  std::vector<ProfiledInstruction> instructions;
  std::vector<ProfiledClass> classes; ///< most time first; empty unless `card` is known

  bool hasRoofline() const { return roofline || card.card; }
  /// The share of its roofline from which a kernel counts as being at it. Rates of data sheets are never reached.
  double atRoofline() const { return card.card ? 1 / 1.5 : 0.9; }
  double instructionSeconds() const;
  /// Seconds of a step in kernels that are at their roofline.
  double secondsAtRoofline() const;
  /// Seconds of a step if all kernels ran at their roofline; kernels that are faster keep their time.
  double leastSeconds() const;
};

inline constexpr double kWorthNaming = 0.03; ///< share of a step

/// If both rooflines are missing, times are not compared with any.
ProfileReport makeProfileReport(const runtime::Session &session, const runtime::Profile &profile,
                                std::optional<runtime::Roofline> roofline, report::ChosenCard card = {});

/// For a terminal. `all`: every kernel, else those that take a two-hundredth of the step or more.
std::string profileText(const ProfileReport &report, bool all);
std::string profileJson(const ProfileReport &report);

/// The step of the median time as a trace of Chrome's format (chrome://tracing, Perfetto): complete events in
/// microseconds.
std::string profileTrace(const ProfileReport &report);

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_PROFILEREPORT_H
