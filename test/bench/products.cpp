//===- products.cpp - our matrix products beside oneDNN's ----------------===//
//
//   products-bench [f32|bf16] [NAME]
//
// Times the products of layers of well-known networks on one thread: forward, the input's gradient, the weights' gradient.
// Prints a row of a table for each: milliseconds on our panels, of oneDNN cut into tiles as plans call it, and of one call
// of oneDNN for the whole product; and what `tcc` chooses. TCC_TEST_LEVEL names the level; the library uses all of the
// machine's instructions unless ONEDNN_MAX_CPU_ISA limits it.
//
// With -DONEDNN_ALONE only the whole product is timed. That compiles against any oneDNN since 2.0, without this project:
//
//   g++ -std=c++20 -O2 -fopenmp -DONEDNN_ALONE -I FOLDER/include test/bench/products.cpp -L FOLDER/lib -l:libdnnl.so.3
//
//===----------------------------------------------------------------------===//
#include "LeastTime.h"
#ifndef ONEDNN_ALONE
#include "test/unit/runtime/LibraryFixture.h"
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <sys/mman.h>
#include <vector>

using tcc::bench::leastMilliseconds;

namespace {
/// A product of rows × inputs by inputs × outputs.
struct Layer {
  const char *name;
  int64_t rows, outputs, inputs;
};

const std::vector<Layer> kLayers = {
    {"GPT-2 4 × 64, attention in", 256, 2304, 768}, {"GPT-2 4 × 64, attention out", 256, 768, 768},
    {"GPT-2 4 × 64, MLP in", 256, 3072, 768},       {"GPT-2 4 × 64, MLP out", 256, 768, 3072},
    {"GPT-2 4 × 64, logits", 256, 50257, 768},      {"GPT-2 1 × 1024, MLP in", 1024, 3072, 768},
    {"GPT of width 128, MLP in", 1024, 512, 128},   {"MLP of 512, 64 rows", 64, 512, 784},
    {"1×1, 64→256, 56²", 25088, 256, 64},           {"1×1, 256→64, 56²", 25088, 64, 256},
    {"1×1, 128→512, 28²", 6272, 512, 128},          {"1×1, 256→1024, 14²", 1568, 1024, 256},
    {"1×1, 512→2048, 7²", 392, 2048, 512},
};

struct Product {
  int64_t m, n, k;
  bool transA, transB;
};

/// Zeros on huge pages, as a plan's arena has: on small ones the columns of a wide matrix miss the TLB.
class Words {
public:
  explicit Words(int64_t count) : bytes((count * 4 + kHugePage - 1) / kHugePage * kHugePage) {
    words = static_cast<float *>(std::aligned_alloc(kHugePage, bytes));
    madvise(words, bytes, MADV_HUGEPAGE);
    std::memset(words, 0, bytes);
  }
  Words(const Words &) = delete;
  ~Words() { std::free(words); }
  float *get() { return words; }

private:
  static constexpr size_t kHugePage = 2 << 20;
  size_t bytes;
  float *words;
};

/// One call of the library for the whole product. It may use its own layout inside, but reads and writes ours.
double whole(const Product &p, bool narrow, float *a, float *b, float *c) {
  omp_set_num_threads(1);
  using dnnl::memory;
  auto type = narrow ? memory::data_type::bf16 : memory::data_type::f32;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  memory::desc x({p.m, p.k}, type, p.transA ? memory::dims{1, p.m} : memory::dims{p.k, 1});
  memory::desc y({p.k, p.n}, type, p.transB ? memory::dims{1, p.k} : memory::dims{p.n, 1});
  memory::desc z({p.m, p.n}, type, memory::dims{p.n, 1});
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc desc(engine, x, y, z);
#else
  dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, y, z), engine);
#endif
  dnnl::matmul primitive(desc);
  memory first(x, engine, a), second(y, engine, b), result(z, engine, c);
  return leastMilliseconds([&] {
    primitive.execute(stream, {{DNNL_ARG_SRC, first}, {DNNL_ARG_WEIGHTS, second}, {DNNL_ARG_DST, result}});
    stream.wait();
  });
}

#ifndef ONEDNN_ALONE
using namespace tcc;
using Call = plan::MatmulCall;

/// Times the call with these tiles and this implementation instead of the compiler's choice.
double tiled(Call call, const runtime::MatmulTiling &t, Call::Implementation implementation, float *a, float *b, float *c) {
  target::cpu::setTiling(call, implementation, t);
  auto shape = runtime::shapeOf(call);
  if (implementation == Call::LIBRARY)
    call.set_library_scratch_bytes(runtime::libraryScratchBound(*shape, t, *runtime::levelFromName(test::testLevel())));
  auto needs = runtime::needsOf(call);
  if (!needs)
    return 0;
  auto made = runtime::prepare(call, test::levelOfTest(), test::scratchOf(*needs, 1), 1);
  if (!made)
    return 0;
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(1);
  test::Floats scratch(needs->scratchBytes(1) / 4), partials(needs->partialBytes / 4);
  void *pointers[] = {a, b, c, partials.get()};
  return leastMilliseconds([&] { runtime::runCall(**made, pool, pointers, reinterpret_cast<char *>(scratch.get())); });
}

void printRow(const std::string &name, const Product &p, bool narrow, float *a, float *b, float *c) {
  Call call = test::matmulCall(1, p.m, p.n, p.k, p.transA, p.transB);
  call.set_dtype(narrow ? plan::BF16 : plan::F32);
  call.set_result_dtype(call.dtype());
  if (auto needs = test::query(call); !needs) {
    std::printf("| %s | %s |\n", name.c_str(), needs.message().c_str());
    return;
  }
  auto shape = runtime::shapeOf(call);
  target::cpu::CpuModel model;
  double panels = tiled(call, target::cpu::choosePanelTiling(*shape, model), Call::PANELS, a, b, c);
  double cut = tiled(call, target::cpu::chooseLibraryTiling(*shape, model), Call::LIBRARY, a, b, c);
  double one = whole(p, narrow, a, b, c);
  fmt::print("| {} | {:.3f} | {:.3f} | {:.3f} | {:.2f} | {} |\n", name, panels, cut, one, panels / std::min(cut, one),
             Call::Implementation_Name(call.implementation()));
}
#else
void printRow(const std::string &name, const Product &p, bool narrow, float *a, float *b, float *c) {
  std::printf("| %s | %.3f |\n", name.c_str(), whole(p, narrow, a, b, c));
}
#endif
} // namespace

int main(int argc, char **argv) {
  bool narrow = argc > 1 && std::string(argv[1]) == "bf16";
  const char *only = argc > 2 ? argv[2] : "";
#ifndef ONEDNN_ALONE
  if (Status status = runtime::selectLevel(test::testLevel()); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  std::puts("| product | panels, ms | oneDNN in tiles, ms | oneDNN whole, ms | panels / the better | tcc's choice |\n"
            "| --- | ---: | ---: | ---: | ---: | --- |");
#else
  const dnnl_version_t *version = dnnl_version();
  std::printf("| product | oneDNN %d.%d.%d whole, ms |\n| --- | ---: |\n", version->major, version->minor, version->patch);
#endif
  for (const Layer &layer : kLayers) {
    if (!std::strstr(layer.name, only))
      continue;
    int64_t m = layer.rows, n = layer.outputs, k = layer.inputs;
    Words a(std::max(m * k, m * n)), b(std::max(k * n, m * n)), c(std::max({m * n, m * k, k * n}));
    float *ends[] = {a.get(), b.get(), c.get()};
    std::string name = layer.name;
    printRow(name + ", forward", {m, n, k, false, false}, narrow, ends[0], ends[1], ends[2]);
    printRow(name + ", input", {m, k, n, false, true}, narrow, ends[0], ends[1], ends[2]);
    printRow(name + ", weights", {k, n, m, true, false}, narrow, ends[0], ends[1], ends[2]);
    std::fflush(stdout);
  }
  return 0;
}
