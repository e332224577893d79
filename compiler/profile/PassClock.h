//===- PassClock.h - measures each pass for the profile ---------*- C++ -*-===//
#ifndef TCC_COMPILER_PROFILE_PASSCLOCK_H
#define TCC_COMPILER_PROFILE_PASSCLOCK_H

#include "compiler/profile/Profile.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"

#include <map>
#include <mutex>

namespace tcc {

/// Adds the time of each pass, verification included, to the profile. One pass on several functions
/// is one part of the phase, however many threads ran it.
class PassClock : public mlir::PassInstrumentation {
public:
  PassClock(Profile &profile, std::string phase) : profile(profile), phase(std::move(phase)) {}

  void runBeforePass(mlir::Pass *pass, mlir::Operation *op) override {
    // Adaptors that run other passes have no name.
    if (pass->getArgument().empty())
      return;
    Profile::Span span = profile.part(phase, pass->getArgument().str());
    std::lock_guard lock(mutex);
    running[{pass, op}] = std::move(span);
  }
  void runAfterPass(mlir::Pass *pass, mlir::Operation *op) override { finish(pass, op); }
  void runAfterPassFailed(mlir::Pass *pass, mlir::Operation *op) override { finish(pass, op); }

private:
  void finish(mlir::Pass *pass, mlir::Operation *op) {
    Profile::Span span;
    std::lock_guard lock(mutex);
    if (auto found = running.find({pass, op}); found != running.end()) {
      span = std::move(found->second);
      running.erase(found);
    }
  }

  Profile &profile;
  std::string phase;
  std::mutex mutex;
  std::map<std::pair<mlir::Pass *, mlir::Operation *>, Profile::Span> running; // only looked up, never walked
};

} // namespace tcc

#endif // TCC_COMPILER_PROFILE_PASSCLOCK_H
