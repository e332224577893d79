//===- trun.hpp - train the plans of tcc inside a C++ program ----*- C++ -*-===//
//
// trun.h with owners and exceptions, C++20, headers alone:
//
//   trun::Plan plan("mlp.tplan");
//   trun::Trainer trainer(plan);
//   for (auto &batch : batches)
//     std::cout << trainer.step({trun::tensor("x", batch.x, {64, 784}), trun::tensor("y", batch.y, {64})}).loss << '\n';
//
//===----------------------------------------------------------------------===//
#ifndef TRUN_TRUN_HPP
#define TRUN_TRUN_HPP

#include <trun/trun.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace trun {

/// What a call refuses: one line that says what is wrong, where, and what to do.
class Error : public std::runtime_error {
public:
  Error(trun_code code, const std::string &message, std::string node)
      : std::runtime_error(message), code(code), node(std::move(node)) {}
  trun_code code;
  std::string node; ///< the ONNX node that first computed a value that is not finite (TRUN_NON_FINITE)
};

/// A struct of trun.h with its size.
template <typename T> T sized() {
  T made{};
  made.size = sizeof(T);
  return made;
}

/// Throws the error that a function of trun.h returned, if it did.
inline void check(trun_error *error) {
  if (!error)
    return;
  const std::unique_ptr<trun_error, decltype(&trun_error_free)> owner(error, trun_error_free);
  throw Error(trun_error_code(error), trun_error_message(error), trun_error_node(error));
}

template <typename T> constexpr trun_dtype dtypeOf = trun_dtype{};
template <> inline constexpr trun_dtype dtypeOf<double> = TRUN_F64;
template <> inline constexpr trun_dtype dtypeOf<float> = TRUN_F32;
template <> inline constexpr trun_dtype dtypeOf<int64_t> = TRUN_I64;
template <> inline constexpr trun_dtype dtypeOf<int32_t> = TRUN_I32;
template <> inline constexpr trun_dtype dtypeOf<int16_t> = TRUN_I16;
template <> inline constexpr trun_dtype dtypeOf<int8_t> = TRUN_I8;
template <> inline constexpr trun_dtype dtypeOf<uint8_t> = TRUN_U8;
template <> inline constexpr trun_dtype dtypeOf<bool> = TRUN_BOOL;

/// A dense tensor in the caller's memory. Error: the shape has another number of elements.
struct Tensor {
  std::string name;
  const void *data;
  trun_dtype dtype;
  std::vector<int64_t> dims;
};

template <typename T> Tensor tensor(std::string name, std::span<const T> values, std::vector<int64_t> dims) {
  static_assert(dtypeOf<T> != trun_dtype{}, "no type of tensors");
  size_t count = 1;
  for (int64_t dim : dims)
    count *= static_cast<size_t>(dim);
  if (count != values.size())
    throw Error(TRUN_USAGE, "'" + name + "': " + std::to_string(values.size()) + " values for a shape of " +
                                std::to_string(count), "");
  return {std::move(name), values.data(), dtypeOf<T>, std::move(dims)};
}
template <typename T> Tensor tensor(std::string name, const std::vector<T> &values, std::vector<int64_t> dims) {
  return tensor(std::move(name), std::span<const T>(values), std::move(dims));
}

/// An array that a call gave.
struct Array {
  trun_dtype dtype;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
  /// Its elements. Error: T is another type.
  template <typename T> std::span<const T> as() const {
    if (dtype != dtypeOf<T>)
      throw Error(TRUN_USAGE, "the array has another type of elements", "");
    return {reinterpret_cast<const T *>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

class Plan {
public:
  explicit Plan(const std::string &path) {
    trun_plan *made = nullptr;
    check(trun_plan_open(path.c_str(), &made));
    handle.reset(made);
  }
  /// From memory, which is copied.
  explicit Plan(std::span<const std::byte> bytes) {
    trun_plan *made = nullptr;
    check(trun_plan_open_memory(bytes.data(), bytes.size(), nullptr, &made));
    handle.reset(made);
  }

  std::string model() const { return trun_plan_model(get()); }
  std::string target() const { return trun_plan_target(get()); }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    while (const char *name = trun_plan_entry(get(), names.size()))
      names.emplace_back(name);
    return names;
  }
  size_t values(const std::string &entry) const { return trun_plan_values(get(), entry.c_str()); }
  size_t variables() const { return trun_plan_variables(get()); }
  /// Valid as long as the plan.
  trun_info variable(size_t index) const {
    trun_info info = sized<trun_info>();
    check(trun_plan_variable(get(), index, &info));
    return info;
  }
  trun_info value(const std::string &entry, size_t index) const {
    trun_info info = sized<trun_info>();
    check(trun_plan_value(get(), entry.c_str(), index, &info));
    return info;
  }
  trun_memory memory(unsigned threads = 0) const {
    trun_memory memory = sized<trun_memory>();
    check(trun_plan_memory(get(), threads, &memory));
    return memory;
  }
  trun_plan *get() const { return handle.get(); }

private:
  struct Close {
    void operator()(trun_plan *plan) const { trun_plan_close(plan); }
  };
  std::unique_ptr<trun_plan, Close> handle;
};

class Trainer {
public:
  explicit Trainer(const Plan &plan, const trun_trainer_options &options = trun_trainer_defaults()) {
    trun_trainer *made = nullptr;
    check(trun_trainer_create(plan.get(), &options, &made));
    handle.reset(made);
  }

  trun_step step(const std::vector<Tensor> &tensors) {
    trun_step step = sized<trun_step>();
    const std::vector<trun_tensor> given = structs(tensors);
    check(trun_trainer_step(get(), given.data(), given.size(), &step));
    return step;
  }
  /// The graph outputs that the plan was compiled to return (train.outputs), for the rows of the last step.
  std::map<std::string, Array> outputs() {
    trun_results *made = nullptr;
    check(trun_trainer_outputs(get(), &made));
    return arrays(Results(made));
  }
  uint64_t rows() const { return trun_trainer_rows(get()); }
  uint64_t steps() const { return trun_trainer_steps(get()); }
  void nextEpoch() { check(trun_trainer_next_epoch(get())); }
  void setRate(double rate) { check(trun_trainer_set_rate(get(), rate)); }
  void set(const std::string &setting) { check(trun_trainer_set(get(), setting.c_str())); }

  std::map<std::string, double> evaluate(const std::vector<Tensor> &tensors, bool averages = false) {
    const std::vector<trun_tensor> given = structs(tensors);
    trun_results *made = nullptr;
    check(trun_trainer_evaluate(get(), given.data(), given.size(), averages, &made));
    const Results results(made);
    std::map<std::string, double> numbers;
    for (size_t i = 0; i < trun_results_count(made); ++i)
      numbers[trun_results_name(made, i)] = trun_results_number(made, i);
    return numbers;
  }
  std::map<std::string, Array> predict(const std::vector<Tensor> &tensors) { return run("predict", tensors); }
  std::map<std::string, Array> gradients(const std::vector<Tensor> &tensors) { return run("gradients", tensors); }

  template <typename T> void read(const std::string &name, std::span<T> to) {
    check(trun_trainer_read(get(), name.c_str(), to.data(), to.size_bytes()));
  }
  template <typename T> void write(const std::string &name, std::span<const T> from) {
    check(trun_trainer_write(get(), name.c_str(), from.data(), from.size_bytes()));
  }
  void save(const std::string &run) { check(trun_trainer_save(get(), run.c_str())); }
  void load(const std::string &run) { check(trun_trainer_load(get(), run.c_str())); }
  void exportTo(const std::string &path) { check(trun_trainer_export(get(), path.c_str())); }
  void exportAdapter(const std::string &folder) { check(trun_trainer_export_adapter(get(), folder.c_str())); }

  /// `onEvent` must not throw; it replaces the options' own.
  void fit(trun_fit_options options, std::function<void(const trun_event &)> onEvent = nullptr) {
    if (onEvent) {
      options.user = &onEvent;
      options.on_event = [](void *user, const trun_event *event) {
        (*static_cast<std::function<void(const trun_event &)> *>(user))(*event);
      };
    }
    check(trun_trainer_fit(get(), &options));
  }
  /// From any thread, or a signal handler.
  void stop() noexcept { trun_trainer_stop(get()); }
  trun_trainer *get() const { return handle.get(); }

private:
  struct Free {
    void operator()(trun_trainer *trainer) const { trun_trainer_free(trainer); }
    void operator()(trun_results *results) const { trun_results_free(results); }
  };
  using Results = std::unique_ptr<trun_results, Free>;

  static std::vector<trun_tensor> structs(const std::vector<Tensor> &tensors) {
    std::vector<trun_tensor> given;
    for (const Tensor &one : tensors)
      given.push_back({sizeof(trun_tensor), one.name.c_str(), one.data, one.dtype, static_cast<int>(one.dims.size()),
                       one.dims.data(), nullptr});
    return given;
  }
  std::map<std::string, Array> run(const char *entry, const std::vector<Tensor> &tensors) {
    const std::vector<trun_tensor> given = structs(tensors);
    trun_results *made = nullptr;
    check(trun_trainer_run(get(), entry, given.data(), given.size(), &made));
    return arrays(Results(made));
  }
  static std::map<std::string, Array> arrays(const Results &results) {
    trun_results *made = results.get();
    std::map<std::string, Array> arrays;
    for (size_t i = 0; i < trun_results_count(made); ++i) {
      trun_info info = sized<trun_info>();
      trun_results_info(made, i, &info);
      Array &array = arrays[trun_results_name(made, i)];
      array.dtype = info.dtype;
      array.dims.assign(info.dims, info.dims + info.rank);
      array.bytes.resize(info.bytes);
      std::memcpy(array.bytes.data(), trun_results_data(made, i), info.bytes);
    }
    return arrays;
  }

  std::unique_ptr<trun_trainer, Free> handle;
};

} // namespace trun

#endif
