//===- LrFindCommand.cpp - trun lr-find: search for a learning rate -------===//
#include "runtime/train/LrFind.h"
#include "support/Json.h"
#include "tools/common/StandardStreams.h"
#include "tools/common/TextTable.h"
#include "tools/trun/Commands.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

namespace {
/// About twenty lines: the loss over the whole range of rates.
std::string rangeText(const LrFindResult &result) {
  constexpr size_t kLines = 20;
  report::Table table(">>>", {"lr", "loss", "smoothed"});
  size_t step = std::max<size_t>(1, result.points.size() / kLines);
  for (size_t i = 0; i < result.points.size(); i += step)
    table.add({fmt::format("{:.3g}", result.points[i].rate), fmt::format("{:.5g}", result.points[i].loss),
               fmt::format("{:.5g}", result.points[i].smoothed)});
  return table.text();
}
} // namespace

Status tcc::tools::lrFindCommand(const Options &options) {
  SessionOptions sessionOptions = options.session;
  for (const std::string &setting : lrFindSettings(options.lrFind))
    sessionOptions.settings.push_back(setting);
  auto session = openSession(sessionOptions);
  if (!session)
    return session.status();
  LrFindOptions with = options.lrFind;
  with.note = [](const Message &message) { printMessage("trun: {}\n", message.line()); };
  auto found = findLearningRate(*session, with);
  if (!found)
    return found.status();
  if (options.json) {
    nlohmann::ordered_json line = {{"steepest_lr", found->steepest}, {"least_lr_tenth", found->tenthOfLeast},
                                   {"diverged", found->diverged},    {"points", nlohmann::ordered_json::array()}};
    for (const LrPoint &point : found->points)
      line["points"].push_back({{"lr", point.rate}, {"loss", point.loss}, {"smoothed", point.smoothed}});
    printResult("{}\n", jsonText(line));
    return Status();
  }
  printResult("{}", rangeText(*found));
  if (found->diverged)
    printResult("the loss diverged at lr {:.3g}\n",
                found->points.empty() ? options.lrFind.start : found->points.back().rate);
  if (found->steepest == 0)
    return error(
        "the loss fell at no rate from {:g} to {:g}; give a wider range with --start and --end, or more --steps",
        options.lrFind.start, options.lrFind.end);
  printResult("steepest: optimizer.lr = {:.2g}; a tenth of the least loss's: {:.2g}\n", found->steepest,
              found->tenthOfLeast);
  return Status();
}
