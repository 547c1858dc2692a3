// Counters of the front, as Prometheus text. For the io thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace sluice::server {

struct Metrics {
  std::map<std::pair<std::string, int>, uint64_t> requests;  // by route and status; 0: left without an answer
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t clients_left = 0;  // before their answer was complete
  int running = 0;            // generations
  int connections = 0;
  bool ready = false;

  std::string text(const std::string& model) const;
};

}  // namespace sluice::server
