// One rail: a reliable datagram endpoint with its domain, address vector, completion queue and registered
// memory. Used by one thread at a time (FI_THREAD_DOMAIN: whoever holds the proxy's lock); closed in the
// reverse order.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/libfabric/provider.h"
#include "fabric/libfabric/rail.h"

namespace sluice::fabric::ofi {

// Closes any libfabric object. Not copied; moved only while empty hands are filled.
template <class Object>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      close();
      object_ = std::exchange(other.object_, nullptr);
    }
    return *this;
  }
  ~Handle() { close(); }

  Object* get() const { return object_; }
  Object** out() { return &object_; }
  void close() {
    if (object_ != nullptr) fi_close(&object_->fid);
    object_ = nullptr;
  }

 private:
  Object* object_ = nullptr;
};

// How a peer writes into a region: `base` is added to offsets within it (0 where the provider addresses by
// offset, the virtual address where it wants that).
struct RemoteKey {
  uint64_t key = 0;
  uint64_t base = 0;
};

struct Region {
  Handle<fid_mr> mr;
  void* descriptor = nullptr;
  RemoteKey remote;
};

class Endpoint final : public Rail {
 public:
  // `completions`: how many the queue must be able to hold at once.
  static Result<Endpoint> open(Info info, size_t completions);

  std::string provider() const { return info_->fabric_attr->prov_name; }
  Result<std::string> name() const;
  // Memory that peers write (`remote`) or that writes are sent from.
  Result<Region> register_memory(std::span<std::byte> memory, bool remote);
  // The peers' names in rank order; gives their addresses.
  Result<std::vector<fi_addr_t>> insert(std::span<const std::string> names);

  ssize_t write(const Write& write) override;
  ssize_t poll(std::span<fi_cq_data_entry> entries) override;
  bool read_error(fi_cq_err_entry& entry) override;

  // -1 when this provider cannot be waited for.
  int wait_fd() const { return wait_fd_; }
  // Ends all traffic, before the memory under it is taken away.
  void close_traffic() { ep_.close(); }
  // Whether it is now safe to sleep on wait_fd(): nothing has come since the last poll.
  bool may_sleep();

 private:
  Status open_queue(size_t completions);

  Info info_;
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_cq> cq_;
  Handle<fid_av> av_;
  Handle<fid_ep> ep_;
  int wait_fd_ = -1;
  uint64_t next_key_ = 0;
};

}  // namespace sluice::fabric::ofi
