#include "fabric/local/local_fabric.h"

#include <fmt/core.h>

#include <vector>

#include "fabric/handshake.h"
#include "fabric/local/local_link.h"
#include "fabric/window_fabric.h"
#include "fabric/wire.h"

namespace sluice::fabric {

namespace {

using Windows = std::vector<std::shared_ptr<Window>>;

// Threads of one process share each window as it is; processes map it.
Result<Windows> gather_windows(const std::shared_ptr<Window>& mine, const Options& options,
                               Bootstrap& bootstrap, Deadline deadline) {
  SLUICE_ASSIGN_OR_RETURN(auto shared, bootstrap.all_share("fabric windows", mine, deadline));
  Windows windows;
  windows.reserve(static_cast<size_t>(options.ranks));
  if (!shared.empty()) {
    for (auto& object : shared) windows.push_back(std::static_pointer_cast<Window>(std::move(object)));
    return windows;
  }
  SLUICE_ASSIGN_OR_RETURN(auto handles,
                          bootstrap.all_gather("fabric window handles", mine->handle(), deadline));
  for (int peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.rank) {
      windows.push_back(mine);
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(auto window,
                            Window::open(handles[static_cast<size_t>(peer)], peer, options, mine->layout()));
    windows.push_back(std::move(window));
  }
  return windows;
}

}  // namespace

Result<std::unique_ptr<Fabric>> open_local(const Options& options, Bootstrap& bootstrap) {
  const Deadline deadline = Deadline::after(options.connect_timeout);
  Report identity;
  identity.provider = options.provider;
  identity.fabric_name = "mapped memory";
  identity.wire_version = kWireVersion;
  SLUICE_RETURN_IF_ERROR(compare_ranks(options, identity, bootstrap, deadline));

  SLUICE_ASSIGN_OR_RETURN(auto layout,
                          WindowLayout::make(options.ranks, options.slab_bytes, options.guard_pages));
  auto window = Window::create(options, layout);
  SLUICE_RETURN_IF_ERROR(all_agree(bootstrap, "fabric memory", window.status(), options.rank, deadline));
  auto windows = gather_windows(*window, options, bootstrap, deadline);
  // Nobody leaves before all have mapped, so a handle stays valid for as long as it is needed.
  SLUICE_RETURN_IF_ERROR(all_agree(bootstrap, "fabric ready", windows.status(), options.rank, deadline));

  std::vector<std::unique_ptr<Link>> links;
  links.reserve(windows->size());
  for (auto& peer : *windows) links.push_back(std::make_unique<LocalLink>(std::move(peer), options));
  auto fabric = std::make_unique<WindowFabric>(options, *window, std::move(identity));
  fabric->set_links(std::move(links));
  return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace sluice::fabric
