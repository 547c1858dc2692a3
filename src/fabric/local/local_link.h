// A peer whose window is mapped here: a put is built in place and published by one release store. Nothing can
// fail and nothing reports a peer's death; a dead peer is late.
#pragma once

#include <memory>

#include "fabric/link.h"
#include "fabric/window.h"

namespace sluice::fabric {

class LocalLink final : public Link {
 public:
  LocalLink(std::shared_ptr<Window> peer, const Options& options)
      : peer_(std::move(peer)), rank_(options.rank), epoch_(options.epoch) {}

  Result<std::span<std::byte>> outbox(Kind kind, uint64_t seq, Deadline deadline) override;
  Status put(Kind kind, uint64_t seq, size_t bytes) override;
  Status wake(uint64_t step) override;
  bool local() const override { return true; }

 private:
  std::shared_ptr<Window> peer_;
  int rank_;
  uint64_t epoch_;
};

}  // namespace sluice::fabric
