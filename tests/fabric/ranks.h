// Runs ranks as threads for tests, and fills and checks payloads whose every byte is known.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "fabric/bootstrap.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

// Hides that ranks are threads, so that windows are mapped by their handles as between processes.
class AsProcesses final : public Bootstrap {
 public:
  explicit AsProcesses(Bootstrap& inner) : inner_(inner) {}
  Result<std::vector<std::string>> all_gather(std::string_view name, std::string mine,
                                              Deadline deadline) override {
    return inner_.all_gather(name, std::move(mine), deadline);
  }

 private:
  Bootstrap& inner_;
};

inline Deadline soon() { return Deadline::after(seconds(60)); }

// Runs rank(r, bootstrap) on one thread a rank.
inline void run_ranks(int ranks, const std::function<void(int, Bootstrap&)>& rank) {
  InProcessHub hub(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      auto bootstrap = hub.join(r);
      rank(r, *bootstrap);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

inline uint64_t put_key(int source, int target, Kind kind, uint64_t seq) {
  return mix(seq * 4099 + static_cast<uint64_t>(source) * 67 + static_cast<uint64_t>(target) * 5 +
             static_cast<uint64_t>(kind));
}

inline std::byte pattern(uint64_t key, size_t i) {
  return static_cast<std::byte>(mix(key + i / 8) >> (i % 8 * 8));
}

inline void fill(std::span<std::byte> bytes, uint64_t key) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(key, i);
}

// The first wrong byte, or -1.
inline int64_t first_wrong(std::span<const std::byte> bytes, uint64_t key) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(key, i)) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace sluice::fabric
