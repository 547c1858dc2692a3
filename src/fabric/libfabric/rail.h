// What the sender needs of a rail: to post one counted write. The endpoint is one; tests have others.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace sluice::fabric::ofi {

// Bytes [source, source + length) go to an address of a peer; the immediate tells it when they are in place.
struct Write {
  const std::byte* source = nullptr;
  size_t length = 0;
  void* descriptor = nullptr;  // of the source's registration
  uint64_t peer = 0;           // fi_addr_t
  uint64_t address = 0;
  uint64_t key = 0;
  uint32_t immediate = 0;
  void* context = nullptr;  // begins with a fi_context2; comes back with the completion
};

class Rail {
 public:
  virtual ~Rail() = default;
  // 0; -FI_EAGAIN when there is no room now (nothing was sent); or another negative error of libfabric.
  virtual ssize_t write(const Write& write) = 0;
};

}  // namespace sluice::fabric::ofi
