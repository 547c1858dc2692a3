#include "bench/race.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "bench/rank_main.h"
#include "bench/statistics.h"
#include "bench/team.h"
#include "bench/traffic.h"
#include "fabric/tcp_bootstrap.h"

namespace sluice::bench {
namespace {

constexpr Nanos kBlockTime = milliseconds(333);
constexpr int kFewest = 3;
constexpr int kMost = 2000;
constexpr Nanos kPatience = seconds(600);

// A contestant and the ranks that run it.
struct Side {
  std::string name;
  Team* team = nullptr;
  Slowest samples;
  std::vector<double> block_medians;  // of both phases
};

nlohmann::json percentiles(const std::vector<double>& nanos) {
  return {{"p50", percentile(nanos, 0.5) / 1e3}, {"p99", percentile(nanos, 0.99) / 1e3}};
}

nlohmann::json figures(const Slowest& slowest, const RemoteBytes& bytes) {
  // Bytes a nanosecond are GB a second.
  const auto rate = [](size_t count, const std::vector<double>& nanos) {
    const double time = median(nanos);
    return time > 0 ? static_cast<double>(count) / time : 0.0;
  };
  return {{"dispatch_us", percentiles(slowest.dispatch)},
          {"combine_us", percentiles(slowest.combine)},
          {"both_us", percentiles(slowest.both)},
          {"dispatch_gb_s", rate(bytes.dispatch, slowest.dispatch)},
          {"combine_gb_s", rate(bytes.combine, slowest.combine)}};
}

class Race {
 public:
  Race(Settings settings, const RaceOptions& options) : settings_(std::move(settings)), options_(options) {}

  Result<nlohmann::json> run() {
    SLUICE_RETURN_IF_ERROR(start());
    SLUICE_RETURN_IF_ERROR(verify());
    SLUICE_ASSIGN_OR_RETURN(const int repetitions, repetitions_of_a_block());
    for (int block = 0; block < options_.blocks; ++block)
      SLUICE_RETURN_IF_ERROR(run_block(block, repetitions));
    SLUICE_RETURN_IF_ERROR(verify());
    return result(repetitions);
  }

 private:
  Status start() {
    SLUICE_ASSIGN_OR_RETURN(UniqueFd listener, listen_tcp("127.0.0.1", 0));
    SLUICE_ASSIGN_OR_RETURN(settings_.bootstrap_port, port_of(listener));
    SLUICE_ASSIGN_OR_RETURN(socket_, ControlSocket::create());
    const int ranks = settings_.shape.ranks;
    const Deadline deadline = Deadline::after(settings_.connect_timeout + seconds(10));
    team_ = std::make_unique<Team>("exchange", 0, ranks);
    server_ = std::make_unique<fabric::BootstrapServer>(std::move(listener), ranks);
    const std::string path = socket_->path();
    if (options_.threads) {
      team_->start_threads([path](int rank) { run_exchange_rank(path, rank); });
    } else {
      SLUICE_RETURN_IF_ERROR(
          team_->start_processes(options_.program, [&](int rank) -> std::vector<std::string> {
            return {"bench-rank", "--control", path, "--rank", std::to_string(rank)};
          }));
    }
    SLUICE_RETURN_IF_ERROR(team_->assemble(*socket_, to_json(settings_).dump(), deadline));
    SLUICE_ASSIGN_OR_RETURN(opened_, team_->collect(deadline));
    sides_.push_back({"exchange", team_.get(), {}, {}});
    if (settings_.raw) {
      sides_.push_back({"raw", team_.get(), {}, {}});
      sides_.push_back({"copies", team_.get(), {}, {}});
    }
    return options_.mpi_command.empty() ? Status() : start_mpi(deadline);
  }

  Status start_mpi(Deadline deadline) {
    mpi_team_ = std::make_unique<Team>("mpi", 0, settings_.shape.ranks);
    std::vector<std::string> command = options_.mpi_command;
    command.insert(command.end(), {"--control", socket_->path()});
    SLUICE_RETURN_IF_ERROR(mpi_team_->start_launcher(command));
    SLUICE_RETURN_IF_ERROR(mpi_team_->assemble(*socket_, to_json(settings_).dump(), deadline));
    SLUICE_RETURN_IF_ERROR(mpi_team_->collect(deadline).status());
    sides_.push_back({"mpi", mpi_team_.get(), {}, {}});
    return {};
  }

  Status verify() {
    for (const Side& side : sides_) {
      SLUICE_RETURN_IF_ERROR(side.team->order("verify " + side.name, Deadline::after(kPatience)).status());
    }
    return {};
  }

  // Also warms everything up.
  Result<int> repetitions_of_a_block() {
    double slowest = 1;
    for (const Side& side : sides_) {
      SLUICE_ASSIGN_OR_RETURN(const auto samples,
                              side.team->block(side.name, kFewest, Deadline::after(kPatience)));
      if (side.name == "exchange") slowest = std::max(slowest, median(slowest_of(samples).both));
    }
    if (options_.repetitions > 0) return std::max(1, options_.repetitions / options_.blocks);
    return std::clamp(static_cast<int>(static_cast<double>(kBlockTime) / slowest), kFewest, kMost);
  }

  Status run_block(int block, int repetitions) {
    for (size_t i = 0; i < sides_.size(); ++i) {
      Side& side = sides_[(static_cast<size_t>(block) + i) % sides_.size()];
      SLUICE_ASSIGN_OR_RETURN(const auto samples,
                              side.team->block(side.name, repetitions, Deadline::after(kPatience)));
      const Slowest slowest = slowest_of(samples);
      side.block_medians.push_back(median(slowest.both));
      side.samples.append(slowest);
    }
    return {};
  }

  const Side* find(std::string_view name) const {
    for (const Side& side : sides_) {
      if (side.name == name) return &side;
    }
    return nullptr;
  }

  RemoteBytes mean_bytes() const {
    RemoteBytes bytes;
    for (const nlohmann::json& report : opened_) {
      bytes.dispatch += report.at("remote_dispatch_bytes").get<size_t>();
      bytes.combine += report.at("remote_combine_bytes").get<size_t>();
    }
    return {bytes.dispatch / opened_.size(), bytes.combine / opened_.size()};
  }

  // The median over blocks of what `ratio` makes of one block's medians.
  template <class Ratio>
  double over_blocks(Ratio&& ratio) const {
    std::vector<double> ratios;
    for (size_t block = 0; block < static_cast<size_t>(options_.blocks); ++block)
      ratios.push_back(ratio(block));
    return median(std::move(ratios));
  }

  nlohmann::json result(int repetitions) const {
    const RemoteBytes bytes = mean_bytes();
    nlohmann::json json = to_json(settings_);
    for (const char* internal : {"bootstrap_host", "bootstrap_port", "raw", "connect_timeout", "deadline"}) {
      json.erase(internal);
    }
    json["fabric_name"] = opened_.front().at("fabric_name");
    json["library_version"] = opened_.front().at("library_version");
    json["verified"] = true;
    json["blocks"] = options_.blocks;
    json["repetitions"] = repetitions * options_.blocks;
    json["remote_bytes_a_rank"] = {{"dispatch", bytes.dispatch}, {"combine", bytes.combine}};
    for (const Side& side : sides_) json[side.name] = figures(side.samples, bytes);
    const std::vector<double>& ours = find("exchange")->block_medians;
    if (const Side* mpi = find("mpi")) {
      json["ratio_to_mpi"] =
          over_blocks([&](size_t block) { return ours[block] / mpi->block_medians[block]; });
    }
    if (const Side* raw = find("raw")) {
      const Side* copies = find("copies");
      const bool local = settings_.fabric == "local";
      const auto floor = [&](size_t block) {
        return copies->block_medians[block] + (local ? 0.0 : raw->block_medians[block]);
      };
      json["ratio_to_raw"] =
          over_blocks([&](size_t block) { return raw->block_medians[block] / ours[block]; });
      json["ratio_to_floor"] = over_blocks([&](size_t block) { return floor(block) / ours[block]; });
      json["floor_us"] = over_blocks(floor) / 1e3;
    }
    return json;
  }

  Settings settings_;
  const RaceOptions& options_;
  std::unique_ptr<ControlSocket> socket_;
  std::unique_ptr<fabric::BootstrapServer> server_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Team> mpi_team_;
  std::vector<nlohmann::json> opened_;  // by rank: what it says of itself
  std::vector<Side> sides_;
};

}  // namespace

Result<nlohmann::json> race(const Settings& settings, const RaceOptions& options) {
  return Race(settings, options).run();
}

}  // namespace sluice::bench
