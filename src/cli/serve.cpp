// `sluice serve`: supervises the ranks and the front of this node, and coordinates them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/front_flags.h"
#include "cluster/coordinator.h"
#include "cluster/exit_status.h"
#include "cluster/run_directory.h"
#include "cluster/stop_signals.h"
#include "cluster/supervisor.h"
#include "exchange/placement.h"

namespace sluice::cli {
namespace {

constexpr char kThisProgram[] = "/proc/self/exe";  // the same one even when the file has been replaced
constexpr int kRankStage = 1;                      // after the front, which lets requests finish

struct ServeFlags {
  EngineFlags engine;
  server::FrontOptions front;
  int orphan_timeout = 30;
};

// Calls `use` with a socket and the address for each that the host name has, until it says true.
template <class Use>
Status with_address(const server::FrontOptions& front, Use&& use) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(front.host.c_str(), std::to_string(front.port).c_str(), &hints, &found);
  if (error != 0) {
    return invalid_argument(
        fmt::format("--host: '{}' is no address of this machine: {}", front.host, ::gai_strerror(error)));
  }
  Status status;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const UniqueFd fd(
        ::socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, address->ai_protocol));
    status = use(fd.get(), *address);
    if (status.ok()) break;
  }
  ::freeaddrinfo(found);
  return status;
}

Status check_port_is_free(const server::FrontOptions& front) {
  return with_address(front, [&](int fd, const addrinfo& address) -> Status {
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0) return {};
    return errno_status(Code::unavailable,
                        fmt::format("cannot listen on --host {} --port {}", front.host, front.port));
  });
}

bool front_listens(const server::FrontOptions& front) {
  return with_address(front,
                      [&](int fd, const addrinfo& address) -> Status {
                        if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return {};
                        return errno_status(Code::unavailable, "connect");
                      })
      .ok();
}

// Everything that can be known to be wrong before a process starts.
Result<checkpoint::ModelConfig> check(const ServeFlags& flags) {
  SLUICE_RETURN_IF_ERROR(to_rank_settings(flags.engine, 0).status());
  SLUICE_ASSIGN_OR_RETURN(auto config, checkpoint::read_model_config(flags.engine.model));
  SLUICE_RETURN_IF_ERROR(checkpoint::read_generation_config(flags.engine.model).status());
  SLUICE_RETURN_IF_ERROR(checkpoint::Checkpoint::open(flags.engine.model).status());
  SLUICE_RETURN_IF_ERROR(exchange::Placement::contiguous(config.experts, flags.engine.data_parallel_size)
                             .status()
                             .with_context("--data-parallel-size"));
  SLUICE_RETURN_IF_ERROR(check_port_is_free(flags.front));
  return config;
}

class Serve {
 public:
  Serve(const ServeFlags& flags, checkpoint::ModelConfig config, const cluster::RunDirectory& directory)
      : flags_(flags),
        config_(std::move(config)),
        directory_(directory),
        supervisor_(kThisProgram, specs(), hooks()) {}

  int run(int stop_fd) {
    // Children first: gRPC has no threads yet. They find the coordinator when it is there.
    if (Status status = supervisor_.start(); !status.ok()) return fail(status);
    auto coordinator =
        cluster::Coordinator::start(cluster::coordinator_address(directory_.path()), {.ranks = ranks()});
    if (!coordinator.ok()) return fail(coordinator.status());
    coordinator_ = std::move(*coordinator);
    for (int rank = 0; rank < ranks(); ++rank) {
      coordinator_->process_started(rank, supervisor_.pid(static_cast<size_t>(rank)));
    }
    return supervisor_.run(stop_fd);
  }

 private:
  int ranks() const { return flags_.engine.data_parallel_size; }
  bool is_rank(size_t child) const { return child < static_cast<size_t>(ranks()); }

  static int fail(const Status& status) {
    log::error("{}", status.message());
    return cluster::kExitFailure;
  }

  // The ranks, and then the front.
  std::vector<cluster::ChildSpec> specs() {
    const std::vector<std::string> common{"--run-directory", directory_.path(), "--orphan-timeout",
                                          std::to_string(flags_.orphan_timeout)};
    std::vector<cluster::ChildSpec> specs;
    for (int rank = 0; rank < ranks(); ++rank) {
      cluster::ChildSpec spec;
      spec.name = fmt::format("rank {}", rank);
      spec.arguments = {"rank", "--rank", std::to_string(rank)};
      append(spec.arguments, to_arguments(flags_.engine));
      append(spec.arguments, common);
      spec.stop_stage = kRankStage;
      spec.is_working = [this, rank] {
        return coordinator_->view().health.ranks[static_cast<size_t>(rank)].ready;
      };
      specs.push_back(std::move(spec));
    }
    cluster::ChildSpec front;
    front.name = "front";
    front.arguments = {"front", flags_.engine.model, "--max-model-len",
                       std::to_string(flags_.engine.max_model_len)};
    append(front.arguments, to_arguments(flags_.front));
    front.environment = to_environment(flags_.front);
    append(front.arguments, common);
    front.stop_patience = seconds(flags_.front.drain_timeout_seconds + 5);
    front.is_working = [this] { return front_listens(flags_.front); };
    specs.push_back(std::move(front));
    return specs;
  }

  static void append(std::vector<std::string>& arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
  }

  cluster::SupervisorHooks hooks() {
    return {.started =
                [this](size_t child, int pid) {
                  if (is_rank(child) && coordinator_)
                    coordinator_->process_started(static_cast<int>(child), pid);
                },
            .exited =
                [this](size_t child, int pid, const std::string& reason) {
                  if (!is_rank(child)) return;
                  const int rank = static_cast<int>(child);
                  coordinator_->process_exited(rank, pid, reason);
                  cluster::remove_socket(cluster::rank_address(directory_.path(), rank, pid));
                },
            .hopeless = [this] { return coordinator_->hopeless(); },
            .all_working = [this] { announce(); },
            .stopping = [this] { coordinator_->expect_departures(); }};
  }

  // For the person who started us: what is running, and the proof that it does.
  void announce() const {
    const cluster::Health health = coordinator_->view().health;
    std::vector<int> pids;
    uint64_t puts = 0;
    uint64_t bytes = 0;
    for (const cluster::RankHealth& rank : health.ranks) {
      pids.push_back(rank.pid);
      for (const fabric::PeerTraffic& peer : rank.fabric.peers) {
        puts += peer.puts_sent;
        bytes += peer.bytes_sent;
      }
    }
    const fabric::Report& fabric = health.ranks.front().fabric;
    const bool ipv6 = flags_.front.host.find(':') != std::string::npos;
    const std::string url = fmt::format("http://{}{}{}:{}", ipv6 ? "[" : "", flags_.front.host,
                                        ipv6 ? "]" : "", flags_.front.port);
    const std::string& name = flags_.front.served_model_name;
    fmt::print("serving {} on {}\n", flags_.engine.model, url);
    fmt::print("  model   {}, {} layers, {} experts of which a token uses {}\n",
               checkpoint::architecture_name(config_.architecture), config_.layers, config_.experts,
               config_.top_k);
    fmt::print("  ranks   {} (pid {}), each has produced a token in epoch {}\n", pids.size(),
               fmt::join(pids, ", "), cluster::to_string(health.epoch));
    if (pids.size() > 1) {
      fmt::print("  fabric  {} ({}{}{}), {} puts and {} bytes between ranks so far\n", fabric.provider,
                 fabric.fabric_name, fabric.library_version.empty() ? "" : ", ", fabric.library_version, puts,
                 bytes);
    } else {
      fmt::print("  fabric  none: one rank holds all experts\n");
    }
    fmt::print(
        "try it:\n"
        "  curl -s {}/v1/chat/completions -H 'content-type: application/json' -d "
        "'{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Who are you?\"}}]}}'\n",
        url, name.empty() ? flags_.engine.model : name);
    std::fflush(stdout);
  }

  const ServeFlags& flags_;
  const checkpoint::ModelConfig config_;
  const cluster::RunDirectory& directory_;
  std::unique_ptr<cluster::Coordinator> coordinator_;
  cluster::Supervisor supervisor_;  // its children die before the coordinator does
};

int run(const ServeFlags& flags) {
  const auto config = check(flags);
  if (!config.ok()) {
    fmt::print(stderr, "sluice serve: {}\n", config.status().message());
    return cluster::kExitConfiguration;
  }
  const auto directory = cluster::RunDirectory::create();
  if (!directory.ok()) {
    fmt::print(stderr, "sluice serve: {}\n", directory.status().message());
    return cluster::kExitFailure;
  }
  const UniqueFd stop = cluster::stop_signals_of_supervisor();
  log::set_role("serve");
  ::prctl(PR_SET_NAME, "sluice-serve");
  return Serve(flags, *config, *directory).run(stop.get());
}

}  // namespace

void add_serve(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("serve", "Serve a model over the OpenAI API");
  auto flags = std::make_shared<ServeFlags>();
  add_engine_flags(*command, flags->engine);
  add_front_flags(*command, flags->front);
  command
      ->add_option("--orphan-timeout", flags->orphan_timeout,
                   "Seconds that ranks and front outlive a supervisor that was killed")
      ->check(CLI::Range(0, 86400))
      ->type_name("N")
      ->capture_default_str();
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace sluice::cli
