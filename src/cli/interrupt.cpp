#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace sluice::cli {

Interrupt::Interrupt() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  signals_ = UniqueFd(signalfd(-1, &stop, SFD_CLOEXEC));
  done_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
}

int Interrupt::wait() {
  while (true) {
    pollfd events[2] = {{signals_.get(), POLLIN, 0}, {done_.get(), POLLIN, 0}};
    if (poll(events, 2, -1) < 0) continue;
    signalfd_siginfo info{};
    if ((events[0].revents & POLLIN) != 0 && read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      return static_cast<int>(info.ssi_signo);
    }
    if ((events[1].revents & POLLIN) != 0) return 0;
  }
}

void Interrupt::done() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(done_.get(), &one, sizeof(one));
}

}  // namespace sluice::cli
