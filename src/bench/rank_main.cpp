#include "bench/rank_main.h"

#include <fmt/core.h>

#include "base/sockets.h"
#include "bench/contestant.h"
#include "bench/exchange_contestant.h"
#include "bench/raw_contestants.h"
#include "fabric/tcp_bootstrap.h"

namespace sluice::bench {
namespace {

struct Opened {
  std::unique_ptr<ExchangeContestant> exchange;
  std::vector<RoundTraffic> traffic;
  std::unique_ptr<RawFabric> raw_fabric;
  std::unique_ptr<RawContestant> raw;
  std::unique_ptr<CopiesContestant> copies;
  RemoteBytes remote;
};

Result<std::unique_ptr<Opened>> open(const Settings& settings, int rank) {
  auto opened = std::make_unique<Opened>();
  SLUICE_ASSIGN_OR_RETURN(
      auto bootstrap,
      fabric::connect_bootstrap(settings.bootstrap_host, settings.bootstrap_port, rank, settings.shape.ranks,
                                Deadline::after(settings.connect_timeout)));
  SLUICE_ASSIGN_OR_RETURN(opened->exchange, ExchangeContestant::open(settings, rank, *bootstrap));
  SLUICE_ASSIGN_OR_RETURN(const auto placement,
                          exchange::Placement::contiguous(settings.shape.experts, settings.shape.ranks));
  opened->traffic = make_traffic(settings, placement, rank);
  opened->remote = remote_bytes(settings, opened->traffic, rank);
  if (!settings.raw) return opened;
  SLUICE_ASSIGN_OR_RETURN(opened->raw_fabric, RawFabric::open(settings, rank, *bootstrap));
  opened->raw = std::make_unique<RawContestant>(*opened->raw_fabric, opened->traffic);
  opened->copies = std::make_unique<CopiesContestant>(settings, *opened->raw_fabric, opened->traffic);
  return opened;
}

nlohmann::json report_of(const Opened& opened) {
  const fabric::Report report = opened.exchange->report();
  uint64_t bytes = 0;
  uint64_t puts = 0;
  for (const fabric::PeerTraffic& peer : report.peers) {
    bytes += peer.bytes_sent;
    puts += peer.puts_sent;
  }
  return {{"provider", report.provider},
          {"fabric_name", report.fabric_name},
          {"library_version", report.library_version},
          {"bytes_sent", bytes},
          {"puts_sent", puts},
          {"remote_dispatch_bytes", opened.remote.dispatch},
          {"remote_combine_bytes", opened.remote.combine}};
}

Status run(const std::string& socket, int rank) {
  SLUICE_ASSIGN_OR_RETURN(const auto introduction, introduce(socket, "exchange", rank));
  const int control = introduction.control.get();
  const Deadline soon = Deadline::after(seconds(60));
  const auto settings = settings_from_json(introduction.settings);
  if (!settings.ok()) return settings.status();
  const auto opened = open(*settings, rank);
  if (!opened.ok()) {
    const nlohmann::json answer{{"error", opened.status().message()}};
    return send_frame(control, answer.dump(), soon);
  }
  SLUICE_RETURN_IF_ERROR(send_frame(control, report_of(**opened).dump(), soon));
  std::map<std::string, Contestant*> contestants{{"exchange", (*opened)->exchange.get()}};
  if ((*opened)->raw) contestants["raw"] = (*opened)->raw.get();
  if ((*opened)->copies) contestants["copies"] = (*opened)->copies.get();
  return obey(control, contestants, [&] { return report_of(**opened); });
}

}  // namespace

int run_exchange_rank(const std::string& socket, int rank) {
  const Status status = run(socket, rank);
  if (status.ok()) return 0;
  fmt::print(stderr, "rank {}: {}\n", rank, status.message());
  return 1;
}

}  // namespace sluice::bench
