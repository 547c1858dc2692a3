#include "server/health.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNamespace = "sluice";
constexpr std::string_view kComponent = "backend";
constexpr std::string_view kEndpoint = "generate";

Json instance(const cluster::RankHealth& rank) {
  return {{"namespace", kNamespace},  {"component", kComponent}, {"endpoint", kEndpoint},
          {"instance_id", rank.rank}, {"transport", "grpc"},     {"rank", rank.rank},
          {"pid", rank.pid},          {"state", rank.state}};
}

Json fabric_report(const cluster::RankHealth& rank) {
  const fabric::Report& report = rank.fabric;
  Json peers = Json::array();
  for (const fabric::PeerTraffic& peer : report.peers) {
    peers.push_back({{"rank", peer.rank},
                     {"local", peer.local},
                     {"puts_sent", peer.puts_sent},
                     {"bytes_sent", peer.bytes_sent},
                     {"puts_received", peer.puts_received},
                     {"bytes_received", peer.bytes_received}});
  }
  return {{"rank", rank.rank},
          {"state", rank.state},
          {"provider", report.provider},
          {"fabric_name", report.fabric_name},
          {"library_version", report.library_version},
          {"rails", report.rails},
          {"wire_version", report.wire_version},
          {"peers", std::move(peers)}};
}

}  // namespace

std::string health_json(const cluster::Health& health, const std::string& model) {
  Json endpoints = Json::array();
  Json instances = Json::array();
  Json ranks = Json::array();
  if (health.ready) endpoints.push_back(fmt::format("dyn://{}.{}.{}", kNamespace, kComponent, kEndpoint));
  for (const cluster::RankHealth& rank : health.ranks) {
    if (health.ready && rank.ready) instances.push_back(instance(rank));
    ranks.push_back(fabric_report(rank));
  }
  const Json body = {{"status", health.ready ? "ready" : "not_ready"},
                     {"message", health.message},
                     {"model", model},
                     {"endpoints", std::move(endpoints)},
                     {"instances", std::move(instances)},
                     {"epoch", {{"term", health.epoch.term}, {"number", health.epoch.number}}},
                     {"fabric", {{"ranks", std::move(ranks)}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::server
