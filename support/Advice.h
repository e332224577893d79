//===- Advice.h - advice in messages, worded by the program that shows it --===//
//
// A message of a library ends with advice: an option, a setting or a command that helps. On the command line that is
// "--set data.max_bad=N", in another program an argument of a call. So messages hold advice as marked data, made by the
// functions here, and the program that shows a message replaces the marks by its own words:
//
//   error("{}: exists already; give {}", run, advice::option("out"))    a message
//   worded(status.message(), CommandLineWording())                      "r: exists already; give --out"
//
// A message travels with its marks, also between ranks.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_ADVICE_H
#define TCC_SUPPORT_ADVICE_H

#include <string>
#include <string_view>

namespace tcc {

namespace advice {
/// An option of the program that runs the plan, with its long name: "--eval-data", "--device cuda".
std::string option(std::string_view name, std::string_view value = {});
/// An option that is on or off: "--shuffle", "--no-shuffle".
std::string flag(std::string_view name, bool value = true);
/// A setting of the run: "--set data.max_bad=N".
std::string set(std::string_view key, std::string_view value);
/// A command of the program that runs the plan: "trun data".
std::string command(std::string_view name);
/// An option of the program that runs the plan, where the reader may think of the compiler: "trun --epochs N".
std::string run(std::string_view option, std::string_view value = {});
/// How the run of that folder goes on: "trun … --resume RUN".
std::string resume(std::string_view run);
/// An option with which the model is compiled again: "tcc --entry train".
std::string compile(std::string_view option, std::string_view value = {});
/// A setting with which the model is compiled again: "tcc --set parallel.mode=ddp".
std::string compileSet(std::string_view key, std::string_view value);
/// A command of the compiler: "tcc frontier".
std::string compileCommand(std::string_view name);
} // namespace advice

/// The words for each kind of advice. The base class has neutral ones: names and values.
class Wording {
public:
  virtual ~Wording() = default;
  virtual std::string option(std::string_view name, std::string_view value) const;
  virtual std::string flag(std::string_view name, bool value) const;
  virtual std::string set(std::string_view key, std::string_view value) const;
  virtual std::string command(std::string_view name) const;
  virtual std::string run(std::string_view option, std::string_view value) const;
  virtual std::string resume(std::string_view run) const;
  virtual std::string compile(std::string_view option, std::string_view value) const;
  virtual std::string compileSet(std::string_view key, std::string_view value) const;
  virtual std::string compileCommand(std::string_view name) const;
};

/// The text with every mark replaced by words.
std::string worded(std::string_view text, const Wording &wording);

} // namespace tcc

#endif // TCC_SUPPORT_ADVICE_H
