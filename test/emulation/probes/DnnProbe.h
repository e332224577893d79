//===- DnnProbe.h - a convolution of cuDNN in a probe ---------------------===//
#ifndef TCC_TEST_EMULATION_PROBES_DNNPROBE_H
#define TCC_TEST_EMULATION_PROBES_DNNPROBE_H

#include "test/emulation/probes/Probe.h"

#include <array>
#include <optional>

namespace tcc::probes {

enum class Direction { Forward, Data, Filter };
/// The operation that follows a forward convolution in its graph.
enum class Finish { None, Bias };

/// Two spatial dimensions; w is [features, channels of a group, rows, columns].
struct ConvolutionShape {
  const char *name = "";
  Direction direction = Direction::Forward;
  Finish finish = Finish::None;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool channelsLast = false;
  int64_t batch = 2, channels = 4, rows = 5, columns = 6, features = 3, taps[2] = {3, 3};
  int64_t groups = 1, strides[2] = {1, 1}, dilations[2] = {1, 1}, before[2] = {1, 1}, after[2] = {1, 1};

  std::array<int64_t, 4> x() const { return {batch, channels, rows, columns}; }
  std::array<int64_t, 4> w() const { return {features, channels / groups, taps[0], taps[1]}; }
  std::array<int64_t, 4> y() const;
  int64_t bytes(const std::array<int64_t, 4> &dims) const;
};

/// An engine with its settings, and the notes that the library gives.
struct Engine {
  int64_t index = -1;
  std::vector<std::pair<int64_t, int64_t>> knobs;
  std::vector<int64_t> notes, behavior;
  cudnnBackendDescriptor_t configuration = nullptr;

  bool hasNote(int64_t note) const;
  bool allowed(cudnnDataType_t type, bool tf32) const; ///< whether our runtime would take it
};

/// A convolution with operands in device memory. Descriptors, and the one handle of all, live as long as the process.
class Convolution {
public:
  /// With a `card` (see describeCard) nothing can be executed, and no driver is asked.
  Convolution(Program &program, const ConvolutionShape &shape, cudnnBackendDescriptor_t card = nullptr);
  Convolution(const Convolution &) = delete;
  Convolution &operator=(const Convolution &) = delete;
  ~Convolution();

  std::vector<Engine> engines(cudnnBackendHeurMode_t mode);
  /// The first engine of heuristics A, then of the fallback, that our runtime would take and that gives a plan.
  std::optional<Engine> first(bool tf32 = false);
  /// The same; the probe expects that there is one.
  std::optional<Engine> expectFirst(bool tf32 = false);
  /// The same engine made from its number and settings. Null: the library refuses.
  cudnnBackendDescriptor_t configurationOf(const Engine &engine);
  /// A plan and its workspace in bytes; null if none can be made.
  cudnnBackendDescriptor_t plan(cudnnBackendDescriptor_t configuration, int64_t *workspace = nullptr);
  /// Allocates a plan's workspace; call it before a capture, which forbids allocations.
  void reserve(int64_t workspace);
  cudnnStatus_t execute(cudnnBackendDescriptor_t plan, CUstream stream);
  /// Plans, reserves and executes a configuration on the program's stream, and waits.
  bool run(cudnnBackendDescriptor_t configuration);
  /// Fills operands with small integers and expects the exact result, whatever the order of its sums.
  void expectExact(const Engine &engine);

  /// Fills operands with small integers (sums are exact), or with numbers in [-1, 1); the result with NaN.
  void fill(bool integers);
  void put(int tensor, const std::vector<float> &values); ///< 0: x, 1: w, 2: y, 3: bias; N, C, spatial
  std::vector<float> get(int tensor);
  /// An element of the result in f64, counted N, C, spatial; and the sum of its products' absolute values.
  double reference(int64_t index, double *magnitude = nullptr) const;
  int result() const { return shape.direction == Direction::Forward ? 2 : shape.direction == Direction::Data ? 0 : 1; }
  std::array<int64_t, 4> dims(int tensor) const {
    if (tensor == 3)
      return {1, shape.features, 1, 1};
    return tensor == 0 ? shape.x() : tensor == 1 ? shape.w() : shape.y();
  }

  ConvolutionShape shape;
  cudnnBackendDescriptor_t card = nullptr;
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t graph = nullptr;
  CUdeviceptr memory[4] = {}, scratch = 0;
  int64_t scratchBytes = 0;

private:
  /// The operations that follow the convolution, which writes `sums`.
  std::vector<cudnnBackendDescriptor_t> finishing(cudnnBackendDescriptor_t sums, cudnnBackendDescriptor_t bias,
                                                  cudnnBackendDescriptor_t y) const;
  cudnnBackendDescriptor_t tensorOf(int tensor, int64_t uid, bool isVirtual) const;
  int tensors() const { return shape.finish == Finish::None ? 3 : 4; }
  int64_t place(int tensor, int64_t index) const; ///< of an element in memory

  Program &p;
  std::vector<float> host[4];
};

/// Prints, as lines of JSON, the answers of the library's heuristics for some shapes, and workspace, time and error
/// against f64 of the engines that our runtime would take. With an architecture ("sm_90") the same for a card that need
/// not be present, without time and error. False: something failed.
bool printEngines(Program &program, const std::string &architecture = "");

/// Device properties of a common card of an architecture, in the library's JSON form. Null: the architecture is
/// unknown, or the library is older than 9.8.
cudnnBackendDescriptor_t describeCard(const std::string &architecture);

} // namespace tcc::probes

#endif // TCC_TEST_EMULATION_PROBES_DNNPROBE_H
