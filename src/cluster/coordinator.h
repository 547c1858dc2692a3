// The cluster's memory of itself: serves the Coordinator service (proto/control.proto) on one socket and puts
// Membership's decisions and Rendezvous' meetings on the wire. It is on the path of no step.
//
// Threads: all functions from any thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "cluster/membership.h"

namespace sluice::cluster {

class Coordinator {
 public:
  // `address` in gRPC's notation: "unix:/run/x/coordinator.sock".
  static Result<std::unique_ptr<Coordinator>> start(const std::string& address, Membership::Options options);
  // Ends all calls: ranks and fronts see the coordinator vanish.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // What the supervisor sees of a rank's process.
  void process_started(int rank, int pid);
  void process_exited(int rank, int pid, const std::string& reason);
  // From here on ranks leave because they have been told to: not worth a warning.
  void expect_departures();

  ClusterView view() const;
  Status hopeless() const;  // Membership::hopeless()

 private:
  struct State;
  explicit Coordinator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice::cluster
