// What a fabric says of itself: the proof of transport that /health, bench and fabric-test print.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::fabric {

struct PeerTraffic {
  int rank = 0;
  bool local = false;  // same host, mapped memory
  uint64_t puts_sent = 0;
  uint64_t bytes_sent = 0;  // headers included
  uint64_t puts_received = 0;
  uint64_t bytes_received = 0;
};

struct Report {
  std::string provider;         // what was asked for and is used: "local", "tcp", ...
  std::string fabric_name;      // the provider's own name: "tcp;ofi_rxm"; "mapped memory" for local
  std::string library_version;  // "libfabric 1.17.0"; empty for local
  int rails = 1;
  int wire_version = 1;  // of immediates and headers; ranks with different ones refuse each other
  std::vector<PeerTraffic> peers;
  // Fragments that arrived from the network and were not counted.
  uint64_t stale_fragments = 0;      // of another generation: a paused rank of an older epoch
  uint64_t duplicate_fragments = 0;  // already here
  uint64_t malformed_fragments = 0;  // impossible source, part or stripe

  // Equal on all ranks of an epoch: everything above but the counters.
  uint64_t attestation() const;
};

}  // namespace sluice::fabric
