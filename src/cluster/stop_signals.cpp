#include "cluster/stop_signals.h"

#include <signal.h>
#include <sys/signalfd.h>

#include <initializer_list>

namespace sluice::cluster {
namespace {

UniqueFd catch_signals(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : numbers) sigaddset(&signals, number);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

UniqueFd stop_signals_of_supervisor() {
  ::signal(SIGPIPE, SIG_IGN);
  return catch_signals({SIGINT, SIGTERM, SIGHUP});
}

UniqueFd stop_signals_of_child() {
  for (int number : {SIGINT, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  return catch_signals({SIGTERM});
}

}  // namespace sluice::cluster
