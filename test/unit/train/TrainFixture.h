//===- TrainFixture.h - runs of the hand-made plan -----------------------===//
#ifndef TCC_TEST_UNIT_TRAIN_TRAINFIXTURE_H
#define TCC_TEST_UNIT_TRAIN_TRAINFIXTURE_H

#include "runtime/registry/DeviceRegistry.h"
#include "runtime/train/Train.h"
#include "test/support/device/DeviceValues.h"
#include "test/unit/train/RegressionPlan.h"

#include <nlohmann/json.hpp>

namespace tcc::test {

class TrainTest : public FolderTest {
protected:
  runtime::TrainOptions options(const std::string &data, uint64_t steps, const std::string &run) {
    runtime::TrainOptions result;
    result.data = data;
    result.steps = steps;
    result.out = at(run);
    result.shuffle = false;
    return result;
  }

  Status train(const std::string &plan, const runtime::TrainOptions &options, const std::string &device = "cpu") {
    auto session = runtime::openSession(
        {.planPath = plan, .device = device, .threads = 1, .settings = options.settings, .devices = &devices});
    return session ? runtime::train(*session, options) : session.status();
  }

  /// The lines of updates and evaluations, which have an epoch; those of checkpoints and ends have none.
  std::vector<nlohmann::json> metrics(const std::string &run, bool withEpoch = true) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(at(run) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (nlohmann::json entry = nlohmann::json::parse(line); entry.contains("epoch") == withEpoch)
        lines.push_back(std::move(entry));
    return lines;
  }

  std::vector<float> weights(const std::string &checkpoint, const std::string &name = "w") {
    auto file = runtime::SafetensorsFile::open(at(checkpoint) + "/state.safetensors");
    EXPECT_TRUE(file.ok()) << file.message();
    const runtime::Tensor *tensor = file ? file->find(name) : nullptr;
    std::vector<float> values(3);
    if (tensor)
      std::memcpy(values.data(), tensor->bytes.data(), std::min<size_t>(12, tensor->bytes.size()));
    return values;
  }

  runtime::DeviceRegistry devices = runtime::standardDevices(); ///< of train()
};

} // namespace tcc::test

#endif // TCC_TEST_UNIT_TRAIN_TRAINFIXTURE_H
