//===- Scene.h - a program of the driver in a test -----------------------===//
#ifndef TCC_TEST_EMULATION_FAULTS_SCENE_H
#define TCC_TEST_EMULATION_FAULTS_SCENE_H

#include "test/emulation/driver/Entry.h"

#include <string>
#include <vector>

namespace tcc::emulation {

/// A fresh driver with a context, two streams, two device buffers of 64 numbers and a pinned one, an event, and a
/// module with kernels `fill` (a[i] = i), `twice` (a[i] += a[i]) and `outside` (writes a[64]). The scene frees all of
/// it.
class Scene {
public:
  /// `device`: the one of the machine's 16 devices that the process uses.
  explicit Scene(uint64_t seed, int device = 0);
  ~Scene();

  void launch(cuda::api::CUfunction kernel, cuda::api::CUstream stream, cuda::api::CUdeviceptr a);
  cuda::api::CUgraph capture(const std::vector<std::pair<cuda::api::CUfunction, cuda::api::CUdeviceptr>> &kernels);
  /// Destroys what the scene made, then releases the context.
  void close();
  /// The names of all faults so far, each once.
  static std::string faults();

  static constexpr size_t kBytes = 256;
  cuda::api::CUcontext context = nullptr;
  cuda::api::CUstream one = nullptr, two = nullptr;
  cuda::api::CUdeviceptr a = 0, b = 0;
  cuda::api::CUevent event = nullptr;
  cuda::api::CUmodule module = nullptr;
  cuda::api::CUfunction fill = nullptr, twice = nullptr, outside = nullptr;
  unsigned *pinned = nullptr;
  bool closed = false;
  std::string leaves; ///< objects that the test leaks on purpose
};

/// A program with one mistake, and the name that the stand-in must give it.
struct Planted {
  const char *name, *fault;
  /// Runs the program, with its mistake or without.
  void (*run)(Scene &, bool wrong);
};

/// Expects that the mistake is found by its name in three seeds, and that the program without it runs clean.
void expectFound(const Planted &planted);

/// The text of the scene's module.
std::string sceneModule();

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_FAULTS_SCENE_H
