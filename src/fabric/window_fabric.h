// The Fabric that every provider makes: one window of one's own, one Link per peer. Receiving is the same
// whatever brought the bytes; sending is the link's business.
#pragma once

#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/link.h"
#include "fabric/window.h"

namespace sluice::fabric {

class WindowFabric : public Fabric {
 public:
  WindowFabric(Options options, std::shared_ptr<Window> window, Report identity)
      : Fabric(std::move(options)), window_(std::move(window)), identity_(std::move(identity)) {}

  // One per rank, one's own included. Before first use.
  void set_links(std::vector<std::unique_ptr<Link>> links) { links_ = std::move(links); }

  Result<std::span<std::byte>> outbox(int peer, Kind kind, uint64_t seq, Deadline deadline) override;
  Status put(int peer, Kind kind, uint64_t seq, size_t bytes) override;
  bool arrived(int source, Kind kind, uint64_t seq) const override;
  Result<std::span<const std::byte>> inbox(int source, Kind kind, uint64_t seq) const override;
  Status wake(int peer, uint64_t step) override;
  uint64_t woken(int source) const override;
  Report report() const override;

 protected:
  Doorbell& doorbell() override { return window_->bell(); }
  Window& window() { return *window_; }
  void clear_links() { links_.clear(); }

 private:
  Status check_peer(int peer) const;

  std::shared_ptr<Window> window_;
  Report identity_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace sluice::fabric
