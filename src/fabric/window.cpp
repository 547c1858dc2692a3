#include "fabric/window.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <new>

#include "fabric/wire.h"

namespace sluice::fabric {

namespace {

Status differs(int rank, std::string_view what, uint64_t found, uint64_t expected) {
  return data_loss(fmt::format("the window of rank {} has {} {}; expected {}", rank, what, found, expected));
}

Status check_header(const WindowHeader& header, int rank, const Options& options) {
  if (header.magic != kWindowMagic) return differs(rank, "magic", header.magic, kWindowMagic);
  if (header.wire_version != kWireVersion) {
    return differs(rank, "wire version", header.wire_version, kWireVersion);
  }
  if (header.rank != static_cast<uint32_t>(rank))
    return differs(rank, "owner", header.rank, static_cast<uint64_t>(rank));
  if (header.ranks != static_cast<uint32_t>(options.ranks)) {
    return differs(rank, "ranks", header.ranks, static_cast<uint64_t>(options.ranks));
  }
  if (header.epoch != options.epoch) return differs(rank, "epoch", header.epoch, options.epoch);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (header.slab_bytes[kind] != options.slab_bytes[kind]) {
      return differs(rank, "slab bytes", header.slab_bytes[kind], options.slab_bytes[kind]);
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Window>> Window::create(const Options& options, const WindowLayout& layout) {
  SLUICE_ASSIGN_OR_RETURN(
      auto memory, SharedMemory::create(fmt::format("sluice-window-{}", options.rank), layout.bytes()));
  std::shared_ptr<Window> window(new Window(std::move(memory), layout));
  auto* header = new (window->data()) WindowHeader{};
  header->wire_version = kWireVersion;
  header->ranks = static_cast<uint32_t>(options.ranks);
  header->rank = static_cast<uint32_t>(options.rank);
  header->epoch = options.epoch;
  for (size_t kind = 0; kind < kKinds; ++kind) header->slab_bytes[kind] = options.slab_bytes[kind];
  for (int source = 0; source < options.ranks; ++source) new (&window->words(source)) SourceWords{};
  header->magic = kWindowMagic;
  SLUICE_RETURN_IF_ERROR(window->protect_guards());
  return window;
}

Result<std::shared_ptr<Window>> Window::open(const std::string& handle, int rank, const Options& options,
                                             const WindowLayout& layout) {
  auto memory = SharedMemory::open(handle);
  if (!memory.ok()) return memory.status().with_context(fmt::format("mapping the window of rank {}", rank));
  if (memory->size() != layout.bytes()) return differs(rank, "bytes", memory->size(), layout.bytes());
  std::shared_ptr<Window> window(new Window(std::move(memory).value(), layout));
  SLUICE_RETURN_IF_ERROR(check_header(window->header(), rank, options));
  SLUICE_RETURN_IF_ERROR(window->protect_guards());
  return window;
}

Status Window::protect_guards() const {
  for (int source = 0; source < layout_.ranks(); ++source) {
    for (size_t guard : layout_.guards()) {
      if (mprotect(memory_.data() + layout_.block(source) + guard, kPage, PROT_NONE) != 0) {
        return errno_status(Code::resource_exhausted, "guard pages of a window");
      }
    }
  }
  return {};
}

}  // namespace sluice::fabric
