//===- RunReport.h - a run as text, JSON or a page -------------------------===//
#ifndef TCC_TOOLS_TRUN_RUNREPORT_H
#define TCC_TOOLS_TRUN_RUNREPORT_H

#include "tools/trun/RunHistory.h"

#include <nlohmann/json_fwd.hpp>

namespace tcc::tools {

/// Merges the updates of a long run into at most `most` points, each with the mean, least and greatest loss, sums of
/// seconds, samples and tokens, and the last learning rate.
nlohmann::ordered_json runReportJson(const RunHistory &history, size_t most = 1500);
std::string runReportText(const RunHistory &history);
/// One HTML file that needs no network; it includes RUN/samples.png if that exists.
std::string runReportHtml(const RunHistory &history);

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_RUNREPORT_H
