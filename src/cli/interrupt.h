// Ctrl-C and SIGTERM as something to wait for, instead of a handler.
#pragma once

#include "base/clock.h"
#include "base/unique_fd.h"

namespace sluice::cli {

class Interrupt {
 public:
  // Blocks SIGINT and SIGTERM in this thread and in those it starts from now on.
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that came, or 0 when done() was called first. Then it returns at once, ever after.
  int wait();
  // Ends wait(). From any thread.
  void done();

 private:
  UniqueFd signals_;
  UniqueFd done_;
};

}  // namespace sluice::cli
