//===- ScaleText.cpp - a prediction for people and programs ---------------===//
#include "tools/tcc/Scale.h"

#include "tools/common/TextTable.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>

namespace tcc::report {

using Json = nlohmann::ordered_json;

namespace {
std::string timeOf(double seconds) { return timeText(uint64_t(std::llround(seconds * 1e9))); }

std::string devicesText(uint64_t devices) { return counted(devices, "device"); }

/// The summary sentences at the top.
std::vector<std::string> conclusions(const ScalePrediction &prediction) {
  std::vector<std::string> lines;
  const ScalePoint *least = prediction.smallest();
  if (!least) {
    const auto small = std::min_element(prediction.points.begin(), prediction.points.end(),
                                        [](const auto &a, const auto &b) { return a.memoryBytes() < b.memoryBytes(); });
    lines.push_back(fmt::format("nothing fits: {} on {} takes least, {} of a device's {}; use a smaller batch, a "
                                "--memory-budget, or other devices",
                                scaleModeName(small->mode), devicesText(small->devices),
                                formatBytes(small->memoryBytes()), formatBytes(prediction.availableBytes)));
    return lines;
  }
  lines.push_back(fmt::format("least number that fits: {}, {} ({} of {})", devicesText(least->devices),
                              scaleModeName(least->mode), formatBytes(least->memoryBytes()),
                              formatBytes(prediction.availableBytes)));
  const ScalePoint *best = prediction.best(prediction.points.back().devices);
  for (const ScalePoint &point : prediction.points)
    if (!best && prediction.best(point.devices))
      best = &point;
  if (best)
    lines.push_back(fmt::format("best mode on {}: {}, {} a step, efficiency {}", devicesText(best->devices),
                                scaleModeName(best->mode), timeOf(best->stepSeconds), percentText(best->efficiency)));
  return lines;
}

// The plot.
constexpr double kWidth = 640, kHeight = 320, kLeft = 70, kRight = 90, kTop = 20, kBottom = 40;
constexpr std::string_view kColors[] = {"#666666", "#0072b2", "#e69f00", "#009e73", "#cc79a7"};

/// Round numbers from `low` to `high`, about five: 1, 2, 5, 10 …, or powers of two.
std::vector<double> roundNumbers(double low, double high, bool binary) {
  std::vector<double> found;
  for (int exponent = -60; exponent <= 60; ++exponent)
    for (double factor : binary ? std::vector<double>{1} : std::vector<double>{1, 2, 5})
      if (const double number = factor * std::pow(binary ? 2 : 10, exponent); number >= low && number <= high)
        found.push_back(number);
  if (found.size() < 2) // a narrow range, between two of them
    return {low, high};
  const size_t every = std::max<size_t>((found.size() + 2) / 5, 1);
  std::vector<double> kept;
  for (size_t i = 0; i < found.size(); i += every)
    kept.push_back(found[i]);
  return kept;
}

/// "20 ms" for "20.00 ms".
std::string withoutZeros(std::string text) {
  if (const size_t point = text.find(".0"); point != std::string::npos) {
    const size_t end = text.find_first_not_of('0', point + 1);
    if (end == std::string::npos || text[end] == ' ')
      text.erase(point, std::min(end, text.size()) - point);
  }
  return text;
}

/// Curves over the number of devices, both axes logarithmic, one for each mode.
std::string chart(const ScalePrediction &prediction, const std::string &title,
                  const std::function<double(const ScalePoint &)> &value, double limit, bool binary,
                  const std::function<std::string(double)> &label) {
  double low = limit > 0 ? limit : 1e300, high = std::max(limit, 0.0), most = 1;
  for (const ScalePoint &point : prediction.points) {
    low = std::min(low, value(point));
    high = std::max(high, value(point));
    most = std::max(most, double(point.devices));
  }
  low = std::max(low, 1e-12) / 1.2, high = std::max(high, low) * 1.2;
  auto x = [&](double devices) {
    return kLeft + (kWidth - kLeft - kRight) * (most > 1 ? std::log2(devices) / std::log2(most) : 0.5);
  };
  auto y = [&](double number) {
    return kTop + (kHeight - kTop - kBottom) * (1 - std::log(std::max(number, low) / low) / std::log(high / low));
  };
  std::string svg = fmt::format("<h2>{}</h2>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", title,
                                kWidth, kHeight, title);
  for (double devices = 1; devices <= most; devices *= 2)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n", x(devices),
                       kHeight - kBottom + 18, devices);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">devices</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 4);
  for (double number : roundNumbers(low, high, binary))
    svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/><text x=\"{}\" "
                       "y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                       kLeft, kWidth - kRight, y(number), y(number), kLeft - 6, y(number) + 4,
                       withoutZeros(label(number)));
  if (limit > 0)
    svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#c00\" stroke-dasharray=\"4\"/>"
                       "<text x=\"{}\" y=\"{:.1f}\" fill=\"#c00\">a device</text>\n",
                       kLeft, kWidth - kRight, y(limit), y(limit), kWidth - kRight + 6, y(limit) + 4);
  double below = 0;
  for (ScaleMode mode : kScaleModes) {
    std::string points, dots;
    for (const ScalePoint &point : prediction.points) {
      if (point.mode != mode)
        continue;
      points += fmt::format("{:.1f},{:.1f} ", x(double(point.devices)), y(value(point)));
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{} {}: {}</title></circle>\n",
                          x(double(point.devices)), y(value(point)), kColors[size_t(mode)], point.devices,
                          scaleModeName(mode), label(value(point)));
    }
    if (points.empty())
      continue;
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}<text x=\"{}\" "
                       "y=\"{:.1f}\" fill=\"{}\">{}</text>\n",
                       points, kColors[size_t(mode)], dots, kWidth - kRight + 6, kTop + 60 + below,
                       kColors[size_t(mode)], scaleModeName(mode));
    below += 18;
  }
  return svg + "</svg>\n";
}

std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text)
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}
} // namespace

namespace {
/// "batch = 8, seq = 128".
std::string dimsText(const std::map<std::string, int64_t> &dims) {
  std::string text;
  for (const auto &[name, value] : dims)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  return text;
}

/// What a device takes, and the table.
std::string numbersText(const ScalePrediction &prediction) {
  std::string text = fmt::format(
      "{} parameters; a device takes {} samples a step, {} without messages, and sums {} of gradients\n\n",
      prediction.parameters, prediction.samples, timeOf(prediction.computeSeconds),
      formatBytes(prediction.gradientBytes));
  const bool anyOnHost = std::ranges::any_of(prediction.points, [](auto &point) { return point.hostBytes > 0; });
  std::vector<std::string> names = {"devices",  "mode",    "state", "memory",     "sent",
                                    "messages", "exposed", "step",  "efficiency", ""};
  if (anyOnHost)
    names.insert(names.begin() + 4, {"on the host", "its transfers"});
  Table rows(anyOnHost ? "><>>>>>>>>><" : "><>>>>>>><", names);
  for (const ScalePoint &point : prediction.points) {
    std::string remark = !point.fits ? "does not fit" : prediction.best(point.devices) == &point ? "best" : "";
    if (point.shardsAccumulators)
      remark += remark.empty() ? "sharded sums" : ", sharded sums";
    std::vector<std::string> cells = {std::to_string(point.devices),          std::string(scaleModeName(point.mode)),
                                      formatBytes(point.stateBytes),          formatBytes(point.memoryBytes()),
                                      formatBytes(uint64_t(point.sentBytes)), timeOf(point.messageSeconds),
                                      timeOf(point.exposedSeconds),           timeOf(point.stepSeconds),
                                      percentText(point.efficiency),          remark};
    if (anyOnHost)
      cells.insert(cells.begin() + 4, {formatBytes(point.hostBytes), timeOf(point.transferWaitSeconds)});
    rows.add(std::move(cells));
  }
  return text + rows.text() + "\n";
}

/// Of several shapes: on how many devices all fit. Empty for one shape.
std::string togetherText(const std::vector<ShapeScale> &shapes) {
  if (shapes.size() == 1)
    return "";
  uint64_t devices = 0;
  for (const ShapeScale &shape : shapes) {
    const ScalePoint *least = shape.prediction.smallest();
    if (!least)
      return fmt::format("{} fits on no number of devices\n", dimsText(shape.dims));
    devices = std::max(devices, least->devices);
  }
  return fmt::format("all {} shapes fit on {}\n", shapes.size(), devicesText(devices));
}
} // namespace

std::string scaleText(const std::vector<ShapeScale> &shapes, const Cluster &cluster, const ScaleSubject &subject) {
  std::string text =
      fmt::format("{} for {} in {}, on {}\n", subject.model, subject.target, subject.precision, cluster.name);
  for (const ShapeScale &shape : shapes) {
    if (shapes.size() > 1)
      text += fmt::format("\n{}\n", dimsText(shape.dims));
    text += numbersText(shape.prediction);
    for (const std::string &line : conclusions(shape.prediction))
      text += line + "\n";
  }
  text += (shapes.size() > 1 ? "\n" : "") + togetherText(shapes);
  return text + "By the formulas of docs/design/predict-scale.md: a prediction, not a measurement.\n";
}

static Json predictionJson(const ScalePrediction &prediction) {
  Json points = Json::array();
  auto pointJson = [&](const ScalePoint &point) {
    return Json{{"devices", point.devices},
                {"mode", scaleModeName(point.mode)},
                {"state_bytes", point.stateBytes},
                {"arena_bytes", point.arenaBytes},
                {"gather_bytes", point.gatherBytes},
                {"memory_bytes", point.memoryBytes()},
                {"host_bytes", point.hostBytes},
                {"accumulators", point.shardsAccumulators ? "shards" : "whole"},
                {"fits", point.fits},
                {"sent_bytes", point.sentBytes},
                {"message_seconds", point.messageSeconds},
                {"exposed_seconds", point.exposedSeconds},
                {"transfer_wait_seconds", point.transferWaitSeconds},
                {"step_seconds", point.stepSeconds},
                {"efficiency", point.efficiency},
                {"samples_per_second",
                 point.stepSeconds > 0 ? double(prediction.samples) * double(point.devices) / point.stepSeconds : 0.0}};
  };
  Json best = Json::array();
  for (const ScalePoint &point : prediction.points) {
    points.push_back(pointJson(point));
    if (prediction.best(point.devices) == &point)
      best.push_back({{"devices", point.devices}, {"mode", scaleModeName(point.mode)}});
  }
  const ScalePoint *least = prediction.smallest();
  return {{"available_bytes", prediction.availableBytes},
          {"parameters", prediction.parameters},
          {"gradient_bytes", prediction.gradientBytes},
          {"samples", prediction.samples},
          {"compute_seconds", prediction.computeSeconds},
          {"points", points},
          {"best", best},
          {"smallest", least ? pointJson(*least) : Json(nullptr)}};
}

Json scaleJson(const std::vector<ShapeScale> &shapes, const Cluster &cluster, const ScaleSubject &subject) {
  Json document = {{"version", 1},
                   {"model", subject.model},
                   {"target", subject.target},
                   {"precision", subject.precision},
                   {"cluster", cluster.name},
                   {"ranks_per_node", cluster.ranksPerNode}};
  if (shapes.size() == 1) {
    document.update(predictionJson(shapes.front().prediction));
    return document;
  }
  document["shapes"] = Json::array();
  for (const ShapeScale &shape : shapes) {
    Json one = {{"dims", shape.dims}};
    one.update(predictionJson(shape.prediction));
    document["shapes"].push_back(std::move(one));
  }
  return document;
}

std::string scaleHtml(const std::vector<ShapeScale> &shapes, const Cluster &cluster, const ScaleSubject &subject) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"generator\" content=\"tcc predict-scale\"><title>{} on "
      "{}</title>\n<style>body{{font:15px/1.5 "
      "system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}}"
      "svg{{max-width:100%}}svg "
      "text{{font-size:11px}}pre{{overflow-x:auto;font-size:12px}}</style></head><body>\n<h1>{} on {}</h1>\n",
      escaped(subject.model), escaped(cluster.name), escaped(subject.model), escaped(cluster.name));
  for (const ShapeScale &shape : shapes) {
    const ScalePrediction &prediction = shape.prediction;
    if (shapes.size() > 1)
      page += fmt::format("<h2>{}</h2>\n", escaped(dimsText(shape.dims)));
    for (const std::string &line : conclusions(prediction))
      page += fmt::format("<p>{}</p>\n", escaped(line));
    page += chart(
        prediction, "Step time", [](const ScalePoint &point) { return point.stepSeconds; }, 0, /*binary=*/false,
        timeOf);
    page += chart(
        prediction, "Memory of a device", [](const ScalePoint &point) { return double(point.memoryBytes()); },
        double(prediction.availableBytes), /*binary=*/true, [](double bytes) { return formatBytes(uint64_t(bytes)); });
  }
  if (shapes.size() > 1)
    page += fmt::format("<p>{}</p>\n", escaped(togetherText(shapes)));
  page += fmt::format("<h2>All numbers</h2>\n<pre>{}</pre>\n</body></html>\n",
                      escaped(scaleText(shapes, cluster, subject)));
  return page;
}

} // namespace tcc::report
