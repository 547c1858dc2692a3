#include "bench/settings.h"

#include <fmt/core.h>

namespace sluice::bench {

nlohmann::json to_json(const Settings& settings) {
  const exchange::Shape& shape = settings.shape;
  return {{"ranks", shape.ranks},
          {"experts", shape.experts},
          {"top_k", shape.top_k},
          {"hidden", shape.hidden},
          {"round_tokens", shape.max_tokens},
          {"wire", dtype_name(shape.wire)},
          {"exact", shape.exact},
          {"tokens", settings.tokens},
          {"load", load_name(settings.load)},
          {"seed", settings.seed},
          {"fabric", settings.fabric},
          {"raw", settings.raw},
          {"bootstrap_host", settings.bootstrap_host},
          {"bootstrap_port", settings.bootstrap_port},
          {"address", settings.address},
          {"proof_bytes", settings.proof_bytes},
          {"connect_timeout", settings.connect_timeout},
          {"deadline", settings.deadline}};
}

Result<Settings> settings_from_json(const std::string& text) {
  Settings settings;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    exchange::Shape& shape = settings.shape;
    json.at("ranks").get_to(shape.ranks);
    json.at("experts").get_to(shape.experts);
    json.at("top_k").get_to(shape.top_k);
    json.at("hidden").get_to(shape.hidden);
    json.at("round_tokens").get_to(shape.max_tokens);
    const auto wire = json.at("wire").get<std::string>();
    shape.wire = wire == dtype_name(DType::bfloat16) ? DType::bfloat16 : DType::float32;
    json.at("exact").get_to(shape.exact);
    json.at("tokens").get_to(settings.tokens);
    settings.load = parse_load(json.at("load").get<std::string>()).value_or(Load::uniform);
    json.at("seed").get_to(settings.seed);
    json.at("fabric").get_to(settings.fabric);
    json.at("raw").get_to(settings.raw);
    json.at("bootstrap_host").get_to(settings.bootstrap_host);
    json.at("bootstrap_port").get_to(settings.bootstrap_port);
    json.at("address").get_to(settings.address);
    json.at("proof_bytes").get_to(settings.proof_bytes);
    json.at("connect_timeout").get_to(settings.connect_timeout);
    json.at("deadline").get_to(settings.deadline);
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument(fmt::format("the settings of a rank: {}", error.what()));
  }
  return settings;
}

}  // namespace sluice::bench
