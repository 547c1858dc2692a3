#include "fabric/libfabric/staging.h"

#include <fmt/core.h>
#include <sys/mman.h>

namespace sluice::fabric::ofi {

Result<Staging> Staging::create(const WindowLayout& layout) {
  const size_t bytes = static_cast<size_t>(layout.ranks()) * layout.block_bytes();
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return errno_status(Code::resource_exhausted, fmt::format("staging memory of {} bytes", bytes));
  }
  return Staging(Mapping(address, bytes), layout);
}

}  // namespace sluice::fabric::ofi
