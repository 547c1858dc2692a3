// What one case of `bench exchange` or of fabric-test is about, as it travels to the processes of the ranks.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "bench/workload.h"
#include "exchange/exchange.h"

namespace sluice::bench {

struct Settings {
  exchange::Shape shape;  // max_tokens: of one round
  int tokens = 0;         // of each rank
  Load load = Load::uniform;
  uint64_t seed = 1;
  std::string fabric;
  bool raw = false;  // a second fabric, for plain puts and copies of the same bytes
  // Where the bootstrap server is, and where peers reach this rank.
  std::string bootstrap_host = "127.0.0.1";
  uint16_t bootstrap_port = 0;
  std::string address = "127.0.0.1";
  size_t proof_bytes = 1u << 20;
  Nanos connect_timeout = seconds(60);
  Nanos deadline = seconds(60);  // of every wait
};

nlohmann::json to_json(const Settings& settings);
// From our own parent process; an error says which field is wrong.
Result<Settings> settings_from_json(const std::string& text);

}  // namespace sluice::bench
