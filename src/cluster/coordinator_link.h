// A rank's line to the coordinator: joins, joins again when the line breaks, hears directives, says how
// epochs go.
//
// Threads: events come from the link's own thread, in order; all functions are safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "cluster/membership.h"
#include "fabric/bootstrap.h"

namespace sluice::cluster {

class CoordinatorLink {
 public:
  struct Events {
    std::function<void()> up;  // the coordinator has accepted the rank
    std::function<void(Directive)> directive;
    // The line broke, or could not be made. With Code::invalid_argument the rank was refused, and the link
    // does not try again.
    std::function<void(Status why)> down;
  };

  // Joins when start() is called. `who.highest_epoch` is kept up to date by the link.
  CoordinatorLink(const std::string& address, Introduction who, Events events);
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  void start();

  // Said if the line stands; otherwise dropped, because the coordinator begins a new epoch when it is back.
  void send_ready(EpochId epoch, const fabric::Report& report);
  void send_broken(EpochId epoch, const Breakage& why);

  // Meets the other ranks of `epoch` at the coordinator. Must not outlive the link.
  std::unique_ptr<fabric::Bootstrap> bootstrap(EpochId epoch);

  // Breaks the line and every all_gather() for good.
  void stop();

 private:
  struct State;
  class GrpcBootstrap;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::cluster
