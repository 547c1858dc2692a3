// The memory that a rank exposes to its peers, seen by its owner or by a local peer that mapped it. Every
// word in it has one writer: the source itself when it is local, the owner's proxy when the source is on the
// network.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "base/doorbell.h"
#include "base/mapping.h"
#include "base/status.h"
#include "fabric/fabric.h"
#include "fabric/window_layout.h"

namespace sluice::fabric {

struct WindowHeader {
  uint64_t magic;
  uint32_t wire_version;
  uint32_t ranks;
  uint32_t rank;  // the owner
  uint32_t reserved;
  uint64_t epoch;
  uint64_t slab_bytes[kKinds];
  alignas(64) Doorbell bell;  // rung after every word that the owner may wait for
};

// What one source has told the owner. One cache line, one writer.
struct alignas(64) SourceWords {
  std::atomic<uint64_t> arrival[kKinds][kHalves];  // arrival_word(): stored, never incremented
  std::atomic<uint64_t> wake;                      // the highest step woken for
  std::atomic<uint64_t> puts;                      // received in all, for the report
  std::atomic<uint64_t> bytes;                     // of those puts, headers included
};
static_assert(sizeof(SourceWords) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Where a network source's wake is placed before its immediate tells the proxy to look.
struct alignas(64) Mailbox {
  uint64_t step;
  uint64_t check;  // ~step: a record that is half overwritten by its successor fails it
};

class Window {
 public:
  // This rank's own, zeroed.
  static Result<std::shared_ptr<Window>> create(const Options& options, const WindowLayout& layout);
  // A peer's, by its handle; refused unless it is `rank`'s window of the same epoch and shape.
  static Result<std::shared_ptr<Window>> open(const std::string& handle, int rank, const Options& options,
                                              const WindowLayout& layout);

  const WindowLayout& layout() const { return layout_; }
  std::string handle() const { return memory_.handle(); }
  std::byte* data() const { return memory_.data(); }

  Doorbell& bell() const { return header().bell; }
  SourceWords& words(int source) const {
    return *reinterpret_cast<SourceWords*>(memory_.data() + layout_.words(source));
  }
  SlabHeader* slab(int source, Kind kind, int half) const {
    return reinterpret_cast<SlabHeader*>(memory_.data() + layout_.slab(source, kind, half));
  }
  std::byte* payload(int source, Kind kind, int half) const {
    return reinterpret_cast<std::byte*>(slab(source, kind, half) + 1);
  }
  Mailbox* mailbox(int source) const {
    return reinterpret_cast<Mailbox*>(memory_.data() + layout_.block(source));
  }

 private:
  Window(SharedMemory memory, WindowLayout layout) : memory_(std::move(memory)), layout_(std::move(layout)) {}
  WindowHeader& header() const { return *reinterpret_cast<WindowHeader*>(memory_.data()); }
  Status protect_guards() const;

  SharedMemory memory_;
  WindowLayout layout_;
};

}  // namespace sluice::fabric
