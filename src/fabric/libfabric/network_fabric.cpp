#include "fabric/libfabric/network_fabric.h"

#include <fmt/core.h>

#include <cstring>

#include "fabric/handshake.h"
#include "fabric/libfabric/network_link.h"
#include "fabric/libfabric/proxy.h"
#include "fabric/local/local_link.h"
#include "fabric/proof.h"
#include "fabric/window_fabric.h"
#include "fabric/wire.h"

namespace sluice::fabric {

namespace {

using namespace ofi;

class NetworkFabric final : public WindowFabric {
 public:
  using WindowFabric::WindowFabric;
  // The proxy goes first: it uses the window, and its thread calls peer_failed().
  ~NetworkFabric() override { proxy_.reset(); }

  Status start(Rank rank, std::vector<Target> targets) {
    const std::shared_ptr<Window> window = rank.window;
    auto proxy =
        Proxy::start(options_, std::move(rank), std::move(targets), [this](int peer) { peer_failed(peer); });
    if (!proxy.ok()) return proxy.status();
    proxy_ = std::move(proxy).value();
    std::vector<std::unique_ptr<Link>> links;
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == this->rank()) {
        links.push_back(std::make_unique<LocalLink>(window, options_));
      } else {
        links.push_back(std::make_unique<NetworkLink>(*this, *proxy_, peer));
      }
    }
    set_links(std::move(links));
    return {};
  }

  Report report() const override {
    Report report = WindowFabric::report();
    report.stale_fragments = proxy_->arrivals().stale();
    report.duplicate_fragments = proxy_->arrivals().duplicates();
    report.malformed_fragments = proxy_->arrivals().malformed();
    return report;
  }

 protected:
  bool drive(FunctionRef<bool()> look, Deadline deadline) override { return proxy_->drive(look, deadline); }

 private:
  std::unique_ptr<Proxy> proxy_;
};

// What the queue must hold at once: what is under way to every peer, and what every peer may have under way
// to us (each kind and half in the most stripes, a wake and an acknowledgement).
size_t completions(int ranks) {
  constexpr size_t kInbound = kKinds * kHalves * kMostStripes + 2;
  return static_cast<size_t>(ranks) * (Sender::kCredits + kInbound);
}

Result<Rank> open_rank(const Options& options, Info info) {
  SLUICE_ASSIGN_OR_RETURN(auto layout,
                          WindowLayout::make(options.ranks, options.slab_bytes, options.guard_pages));
  SLUICE_ASSIGN_OR_RETURN(auto window, Window::create(options, layout));
  SLUICE_ASSIGN_OR_RETURN(auto staging, Staging::create(layout));
  SLUICE_ASSIGN_OR_RETURN(auto endpoint, Endpoint::open(std::move(info), completions(options.ranks)));
  SLUICE_ASSIGN_OR_RETURN(auto staging_region, endpoint.register_memory(staging.memory(), false));
  std::vector<Region> blocks;
  for (int source = 0; source < options.ranks; ++source) {
    SLUICE_ASSIGN_OR_RETURN(
        auto block,
        endpoint.register_memory({window->data() + layout.block(source), layout.block_bytes()}, true));
    blocks.push_back(std::move(block));
  }
  return Rank{.window = std::move(window),
              .staging = std::move(staging),
              .endpoint = std::move(endpoint),
              .staging_region = std::move(staging_region),
              .blocks = std::move(blocks)};
}

// A rank's address as the others need it: the keys of its blocks, one a source, then its endpoint's name.
Result<std::string> describe(const Result<Rank>& rank) {
  if (!rank.ok()) return rank.status();
  SLUICE_ASSIGN_OR_RETURN(auto name, rank->endpoint.name());
  std::string text(rank->blocks.size() * sizeof(RemoteKey), '\0');
  for (size_t i = 0; i < rank->blocks.size(); ++i) {
    std::memcpy(text.data() + i * sizeof(RemoteKey), &rank->blocks[i].remote, sizeof(RemoteKey));
  }
  return text + name;
}

Result<std::vector<Target>> connect(const Options& options, Endpoint& endpoint,
                                    const std::vector<std::string>& descriptions) {
  const size_t keys = static_cast<size_t>(options.ranks) * sizeof(RemoteKey);
  std::vector<std::string> names;
  std::vector<Target> targets;
  for (size_t peer = 0; peer < descriptions.size(); ++peer) {
    const std::string& text = descriptions[peer];
    if (text.size() <= keys) {
      return data_loss(
          fmt::format("the address of rank {} has {} bytes, expected more than {}", peer, text.size(), keys));
    }
    RemoteKey key;
    std::memcpy(&key, text.data() + static_cast<size_t>(options.rank) * sizeof(RemoteKey), sizeof(RemoteKey));
    targets.push_back({.peer = 0, .key = key.key, .base = key.base});
    names.push_back(text.substr(keys));
  }
  SLUICE_ASSIGN_OR_RETURN(auto addresses, endpoint.insert(names));
  for (size_t peer = 0; peer < targets.size(); ++peer) targets[peer].peer = addresses[peer];
  return targets;
}

}  // namespace

Result<std::unique_ptr<Fabric>> open_network(const Options& options, Bootstrap& bootstrap) {
  const Deadline deadline = Deadline::after(options.connect_timeout);
  SLUICE_ASSIGN_OR_RETURN(auto info,
                          choose(options.provider, options.provider == "tcp" ? options.address : ""));
  Report identity;
  identity.provider = options.provider;
  identity.fabric_name = info->fabric_attr->prov_name;
  identity.library_version = library_version();
  identity.wire_version = kWireVersion;
  SLUICE_RETURN_IF_ERROR(compare_ranks(options, identity, bootstrap, deadline));

  auto rank = open_rank(options, std::move(info));
  if (!rank.ok() && options.provider == "tcp") {
    rank = rank.status().with_context(fmt::format("fabric 'tcp' on address {}", options.address));
  }
  SLUICE_ASSIGN_OR_RETURN(auto descriptions, gather_or_fail(bootstrap, "fabric addresses", describe(rank),
                                                            options.rank, deadline));
  // Everybody knows everybody before the first write: some providers refuse writes of strangers.
  auto targets = connect(options, rank->endpoint, descriptions);
  SLUICE_RETURN_IF_ERROR(all_agree(bootstrap, "fabric peers", targets.status(), options.rank, deadline));

  auto fabric = std::make_unique<NetworkFabric>(options, rank->window, std::move(identity));
  Status started = fabric->start(std::move(rank).value(), std::move(targets).value());
  SLUICE_RETURN_IF_ERROR(all_agree(bootstrap, "fabric proxies", started, options.rank, deadline));
  SLUICE_RETURN_IF_ERROR(prove_transport(*fabric, options, bootstrap, deadline));
  return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace sluice::fabric
