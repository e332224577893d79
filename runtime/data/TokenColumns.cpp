//===- TokenColumns.cpp - columns derived from a window of tokens ---------===//
//
// Columns are read one by one, so each recomputes the window's transform. Its random numbers depend only on (seed,
// epoch, sample), so inputs and targets agree.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Convert.h"
#include "runtime/data/Formats.h"
#include "runtime/data/transforms/Tokens.h"

#include <algorithm>
#include <cstring>
#include <variant>

using namespace tcc;
using namespace tcc::runtime;

namespace {
using Base = std::shared_ptr<const Column>;

void readWindow(const Column &base, uint64_t index, std::vector<int64_t> &window, Status &status) {
  thread_local std::vector<std::byte> raw;
  raw.resize(base.sampleBytes());
  status = base.read(index, raw.data());
  window.resize(raw.size() / plan::dtypeBytes(base.type().dtype()));
  for (size_t i = 0; i < window.size() && status.ok(); ++i)
    window[i] = integerElement(raw.data(), base.type().dtype(), i);
}

/// The inputs, the targets, or the targets shifted by one, of a transformed window.
class TransformedTokens : public Column {
public:
  enum class Part { Tokens, Targets, Decoder };
  using Kind = std::variant<TokenMasking, SpanCorruption>;

  TransformedTokens(std::string name, plan::TensorType type, Base base, Kind kind, Part part, uint32_t number,
                    int64_t start)
      : Column(std::move(name), std::move(type)), base(std::move(base)), kind(std::move(kind)), part(part),
        number(number), start(start) {}

  Status read(uint64_t index, std::byte *destination) const override { return draw(index, {}, destination); }
  Status draw(uint64_t index, const Draw &draw, std::byte *destination) const override {
    thread_local std::vector<int64_t> window;
    thread_local TokenSample sample;
    Status status;
    readWindow(*base, index, window, status);
    if (!status.ok())
      return status;
    Random random(draw, index, number);
    if (const auto *masking = std::get_if<TokenMasking>(&kind))
      maskTokens(*masking, window, random, sample);
    else if (status = corruptSpans(std::get<SpanCorruption>(kind), window, random, sample); !status.ok())
      return status.withContext(fmt::format("column 'tokens', sample {}", index));
    std::vector<int64_t> &values = part == Part::Tokens ? sample.tokens : sample.targets;
    if (part == Part::Decoder) {
      std::rotate(values.begin(), values.end() - 1, values.end());
      values.front() = start;
    }
    const auto wrong = convertElements(reinterpret_cast<const std::byte *>(values.data()), plan::I64, destination,
                                       type().dtype(), values.size());
    return wrong ? error("column '{}', sample {}, position {}: {} does not fit {}", name(), index, *wrong,
                         values[*wrong], plan::dtypeName(type().dtype()))
                 : Status();
  }
  uint64_t hostBytes() const override { return part == Part::Tokens ? base->hostBytes() : 0; }
  bool isComputed() const override { return true; }

private:
  Base base;
  Kind kind;
  Part part;
  uint32_t number;
  int64_t start;
};

/// The document of each token, the token's position in it, or the mask of token pairs in the same document.
class DocumentColumn : public Column {
public:
  enum class Part { Number, Position, Mask };
  DocumentColumn(std::string name, plan::TensorType type, Base base, int64_t end, Part part)
      : Column(std::move(name), std::move(type)), base(std::move(base)), end(end), part(part) {}

  Status read(uint64_t index, std::byte *destination) const override {
    thread_local std::vector<int64_t> window, values;
    Status status;
    readWindow(*base, index, window, status);
    if (!status.ok())
      return status;
    values.resize(window.size());
    int64_t document = 0, position = 0;
    for (size_t i = 0; i < window.size(); ++i) {
      values[i] = part == Part::Position ? position : document;
      ++position;
      if (window[i] == end) {
        ++document;
        position = 0;
      }
    }
    if (part != Part::Mask) {
      std::memcpy(destination, values.data(), values.size() * sizeof(int64_t));
      return Status();
    }
    for (size_t query = 0; query < values.size(); ++query)
      for (size_t key = 0; key < values.size(); ++key)
        destination[query * values.size() + key] = std::byte(values[query] == values[key]);
    return Status();
  }
  bool isComputed() const override { return true; }

private:
  Base base;
  int64_t end;
  Part part;
};

plan::TensorType windowsType(const Column &base, plan::DType dtype, std::vector<int64_t> dims) {
  plan::TensorType type;
  type.set_dtype(dtype);
  type.add_dims(base.type().dims(0));
  for (int64_t dim : dims)
    type.add_dims(dim);
  return type;
}

/// Removes the windows, with their targets, from the data set and returns them.
Expected<Base> takeWindows(Dataset &dataset, const std::string &name, const std::string &what) {
  const Column *found = dataset.find(name);
  if (!found || found->type().dims_size() != 2 || plan::isFloatingPoint(found->type().dtype()) ||
      found->type().dtype() == plan::I1)
    return error("{}: it needs a column '{}' of integers, [samples, length]; {} has {}", what, name, dataset.path,
                 dataset.describeColumns());
  Base base;
  for (auto &column : dataset.columns)
    if (column.get() == found)
      base = std::move(column);
  std::erase_if(dataset.columns, [](const auto &column) { return !column || column->name() == "targets"; });
  return base;
}

/// The recipe's transforms of tokens that apply to this data.
std::vector<recipe::TransformSpec> tokenSpecs(const DatasetOptions &options) {
  std::vector<recipe::TransformSpec> found;
  const std::string text = settingText(options.settings, "transform");
  auto specs = text.empty() ? Expected<std::vector<recipe::TransformSpec>>(std::vector<recipe::TransformSpec>())
                            : recipe::parseTransforms(text);
  if (specs && !options.predicting)
    for (recipe::TransformSpec &spec : *specs)
      if (spec.kind->works == recipe::TransformKind::Works::OnTokens &&
          (options.training ? spec.inTraining : spec.inEvaluation))
        found.push_back(std::move(spec));
  return found;
}

bool fits(int64_t value, plan::DType dtype) {
  std::byte ignored[8];
  return !convertElements(reinterpret_cast<const std::byte *>(&value), plan::I64, ignored, dtype, 1);
}

Status checkFits(const recipe::TransformSpec &spec, const char *argument, int64_t value, const Column &tokens) {
  if (fits(value, tokens.type().dtype()))
    return Status();
  return error("{}: {} = {} does not fit the {} of column '{}'; use a smaller number, or wider tokens (data.tokens = "
               "\"uint32\")",
               spec.place(), argument, value, plan::dtypeName(tokens.type().dtype()), tokens.name());
}
} // namespace

uint64_t tcc::runtime::windowLengthOf(const DatasetOptions &options, uint64_t length) {
  for (const recipe::TransformSpec &spec : tokenSpecs(options))
    if (spec.kind->name == "span_corruption" && length >= 3)
      return windowFor(corruptionOf(spec), length);
  return length;
}

bool tcc::runtime::makesOwnTargets(const DatasetOptions &options) { return !tokenSpecs(options).empty(); }

Status tcc::runtime::transformTokens(Dataset &dataset, const recipe::TransformSpec &spec) {
  auto taken = takeWindows(dataset, spec.column, spec.place());
  if (!taken)
    return taken.status();
  const Base base = taken.take();
  const int64_t length = base->type().dims(1);
  auto add = [&](std::string name, plan::DType dtype, uint64_t size, TransformedTokens::Kind kind,
                 TransformedTokens::Part part, int64_t start = 0) {
    dataset.columns.push_back(
        std::make_unique<TransformedTokens>(std::move(name), windowsType(*base, dtype, {int64_t(size)}), base,
                                            std::move(kind), part, static_cast<uint32_t>(spec.number), start));
  };
  using Part = TransformedTokens::Part;
  const plan::DType tokens = base->type().dtype();
  if (spec.kind->name == "mask_tokens") {
    const TokenMasking masking = maskingOf(spec);
    for (auto [argument, value] :
         {std::pair("mask", masking.mask), std::pair("vocabulary − 1", masking.vocabulary - 1)})
      if (Status status = checkFits(spec, argument, value, *base); !status.ok())
        return status;
    add(spec.column, tokens, uint64_t(length), masking, Part::Tokens);
    add("targets", plan::I64, uint64_t(length), masking, Part::Targets);
    return Status();
  }
  const SpanCorruption corruption = corruptionOf(spec);
  if (length < 2)
    return error("{}: a window of {} tokens is too short", spec.place(), length);
  const SpanCounts counts = spanCounts(corruption, uint64_t(length));
  if (corruption.sentinel - int64_t(counts.spans) + 1 < 0)
    return error("{}: sentinel = {}: a window has {} spans, whose sentinels count down from it below 0", spec.place(),
                 corruption.sentinel, counts.spans);
  for (auto [argument, value] : {std::pair("sentinel", corruption.sentinel), std::pair("end", corruption.end),
                                 std::pair("start", spec.integer("start"))})
    if (Status status = checkFits(spec, argument, value, *base); !status.ok())
      return status;
  add(spec.column, tokens, counts.inputs, corruption, Part::Tokens);
  add("targets", tokens, counts.targets, corruption, Part::Targets);
  add("decoder_tokens", tokens, counts.targets, corruption, Part::Decoder, spec.integer("start"));
  return Status();
}

Status tcc::runtime::addDocuments(Dataset &dataset, int64_t end) {
  const Column *found = dataset.find("tokens");
  if (!found || found->type().dims_size() != 2)
    return error("data.document_end: {} holds no windows of tokens; it has {}", dataset.path,
                 dataset.describeColumns());
  if (!fits(end, found->type().dtype()))
    return error("data.document_end = {} does not fit the {} of the tokens", end,
                 plan::dtypeName(found->type().dtype()));
  // The data set owns this column and outlives the new ones, which only refer to it.
  const Base base(std::shared_ptr<const Column>(), found);
  const int64_t length = found->type().dims(1);
  using Part = DocumentColumn::Part;
  for (auto [name, dtype, dims, part] :
       {std::tuple("document", plan::I64, std::vector<int64_t>{length}, Part::Number),
        std::tuple("position", plan::I64, std::vector<int64_t>{length}, Part::Position),
        std::tuple("document_mask", plan::I1, std::vector<int64_t>{1, length, length}, Part::Mask)})
    dataset.columns.push_back(std::make_unique<DocumentColumn>(name, windowsType(*base, dtype, dims), base, end, part));
  return Status();
}
