#include "fabric/fabric.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>

#include "fabric/libfabric/network_fabric.h"
#include "fabric/libfabric/provider.h"
#include "fabric/local/local_fabric.h"
#include "fabric/wire.h"

namespace sluice::fabric {

namespace {

constexpr std::array<std::string_view, 4> kProviders = {"local", "tcp", "efa", "efa-direct"};

bool is_provider(const std::string& name) {
  return std::find(kProviders.begin(), kProviders.end(), name) != kProviders.end();
}

Status unknown_provider(const std::string& name) {
  return invalid_argument(
      fmt::format("there is no fabric '{}'; choose one of {}", name, fmt::join(kProviders, ", ")));
}

Status check_options(const Options& options) {
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    return invalid_argument(fmt::format("{} ranks; a fabric has 1 to {}", options.ranks, kMostRanks));
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    return invalid_argument(fmt::format("rank {} of {}; ranks count from 0", options.rank, options.ranks));
  }
  return {};
}

// libfabric links the libraries of InfiniPath and Omni-Path, and these take over signals when they are
// loaded: a crash would leave a .btr file in the working directory, and SIGTERM a traceback. We use neither.
void restore_signals() {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE, SIGINT, SIGTERM}) {
    struct sigaction action = {};
    Dl_info owner{};
    if (::sigaction(number, nullptr, &action) != 0) continue;
    if (::dladdr(reinterpret_cast<const void*>(action.sa_sigaction), &owner) == 0) continue;
    const std::string_view library = owner.dli_fname;
    if (library.find("libinfinipath") == library.npos && library.find("libpsm") == library.npos) continue;
    ::signal(number, SIG_DFL);
  }
}

}  // namespace

void prepare_process() {
  restore_signals();
  // ofi_rxm keeps 4096 buffers of this size for messages; we send none, only one-sided writes.
  setenv("FI_OFI_RXM_BUFFER_SIZE", "512", 0);
}

std::span<const std::string_view> provider_names() { return kProviders; }

Status check_provider(const std::string& name) {
  if (name == "local") return {};
  return is_provider(name) ? ofi::choose(name, "").status() : unknown_provider(name);
}

Result<std::unique_ptr<Fabric>> Fabric::open(const Options& options, Bootstrap& bootstrap) {
  SLUICE_RETURN_IF_ERROR(check_options(options));
  if (options.provider == "local") return open_local(options, bootstrap);
  if (is_provider(options.provider)) return open_network(options, bootstrap);
  return unknown_provider(options.provider);
}

void Fabric::end_epoch() {
  ended_.store(true, std::memory_order_release);
  doorbell().ring();
}

void Fabric::nudge() { doorbell().ring(); }

std::optional<int> Fabric::failed_peer() const {
  const int peer = failed_peer_.load(std::memory_order_acquire);
  return peer < 0 ? std::nullopt : std::optional(peer);
}

void Fabric::peer_failed(int peer) {
  int none = -1;
  failed_peer_.compare_exchange_strong(none, peer, std::memory_order_acq_rel);
  doorbell().ring();
}

}  // namespace sluice::fabric
