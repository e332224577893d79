// Several models in threads, from plans in memory; then a whole run over rows in memory that another thread stops.
#include <trun/trun.hpp>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

namespace {
std::vector<std::byte> bytesOf(const char *path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto *first = reinterpret_cast<const std::byte *>(text.data());
  return {first, first + text.size()};
}

struct Rows {
  std::vector<float> x;
  std::vector<int64_t> y;
  std::vector<int64_t> shape;
};

/// Classes of the largest of the first ten numbers.
Rows rowsOf(const trun::Plan &plan, size_t count, unsigned seed) {
  const trun_info info = plan.value("step", 0);
  Rows rows{{}, {}, {info.dims, info.dims + info.rank}};
  rows.shape[0] = static_cast<int64_t>(count);
  size_t width = 1;
  for (int d = 1; d < info.rank; ++d)
    width *= static_cast<size_t>(info.dims[d]);
  for (size_t row = 0; row < count; ++row) {
    size_t best = 0;
    for (size_t i = 0; i < width; ++i) {
      seed = seed * 1664525u + 1013904223u;
      rows.x.push_back(static_cast<float>(seed >> 8) / 16777216.0f);
      if (i < 10 && rows.x.back() > rows.x[row * width + best])
        best = i;
    }
    rows.y.push_back(static_cast<int64_t>(best));
  }
  return rows;
}

std::vector<trun::Tensor> tensorsOf(const trun::Plan &plan, const Rows &rows) {
  return {trun::tensor(plan.value("step", 0).name, rows.x, rows.shape),
          trun::tensor(plan.value("step", 1).name, rows.y, {static_cast<int64_t>(rows.y.size())})};
}

double trained(const std::vector<std::byte> &bytes, unsigned seed) {
  const trun::Plan plan(bytes);
  trun_trainer_options options = trun_trainer_defaults();
  options.threads = 1;
  trun::Trainer trainer(plan, options);
  double loss = 0;
  for (unsigned i = 0; i < 100; ++i)
    loss = trainer.step(tensorsOf(plan, rowsOf(plan, trainer.rows(), seed + i))).loss;
  return loss;
}
} // namespace

int main(int argc, char **argv) try {
  if (argc != 2)
    return std::fprintf(stderr, "usage: several_models PLAN\n"), 2;
  const std::vector<std::byte> bytes = bytesOf(argv[1]);
  double alone[2], together[2];
  std::vector<std::thread> threads;
  for (unsigned i : {0u, 1u})
    alone[i] = trained(bytes, 7 * i);
  for (unsigned i : {0u, 1u})
    threads.emplace_back([&, i] { together[i] = trained(bytes, 7 * i); });
  for (std::thread &thread : threads)
    thread.join();
  for (int i : {0, 1})
    if (alone[i] != together[i])
      return std::fprintf(stderr, "model %d: %.17g alone, %.17g beside another\n", i, alone[i], together[i]), 1;

  const trun::Plan plan(bytes);
  trun::Trainer trainer(plan);
  const Rows rows = rowsOf(plan, 20 * trainer.rows(), 1);
  const std::vector<trun::Tensor> tensors = tensorsOf(plan, rows);
  std::vector<trun_tensor> given;
  for (const trun::Tensor &one : tensors)
    given.push_back({sizeof(trun_tensor), one.name.c_str(), one.data, one.dtype, static_cast<int>(one.dims.size()),
                     one.dims.data(), nullptr});
  trun_fit_options fit = trun_fit_defaults();
  fit.rows = given.data();
  fit.row_count = given.size();
  fit.steps = int64_t(1) << 40;
  std::atomic<uint64_t> done{0};
  std::thread stopper([&] {
    while (done < 50)
      std::this_thread::yield();
    trainer.stop();
  });
  std::string why;
  trainer.fit(fit, [&](const trun_event &event) {
    if (event.kind == TRUN_EVENT_UPDATE)
      done = event.step;
    if (event.kind == TRUN_EVENT_END)
      why = event.text;
  });
  stopper.join();
  std::printf("%.4f and %.4f in two threads; stopped after %llu updates by %s\n", together[0], together[1],
              static_cast<unsigned long long>(trainer.steps()), why.c_str());
  return trainer.steps() == done && !why.empty() ? 0 : 1;
} catch (const trun::Error &problem) {
  return std::fprintf(stderr, "%s\n", problem.what()), 1;
}
