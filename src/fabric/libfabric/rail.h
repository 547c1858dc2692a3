// What the proxy needs of a rail: to post counted writes and to read what has completed. The endpoint is one;
// the simulated network of the tests is another.
#pragma once

#include <rdma/fi_eq.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

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
  // The number of completions; 0 for none; -FI_EAVAIL when read_error() has one; or another negative error.
  virtual ssize_t poll(std::span<fi_cq_data_entry> entries) = 0;
  virtual bool read_error(fi_cq_err_entry& entry) = 0;
};

}  // namespace sluice::fabric::ofi
