// generation_config.json: a checkpoint's defaults for sampling, and the tokens that end a text.
#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/config.h"
#include "checkpoint/fields.h"

namespace sluice::checkpoint {
namespace {

constexpr int32_t kMostId = std::numeric_limits<int32_t>::max();

// An empty object when the file does not exist.
Result<nlohmann::json> read_object(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nlohmann::json::object();
  SLUICE_ASSIGN_OR_RETURN(nlohmann::json json, read_json_file(path));
  if (!json.is_object()) {
    return invalid_argument(fmt::format("{}: it holds {}; it must be a JSON object", path, json_text(json)));
  }
  return json;
}

Status read_token_ids(const Fields& fields, GenerationConfig& config) {
  if (config.eos_token_ids.empty()) {
    SLUICE_ASSIGN_OR_RETURN(config.eos_token_ids, fields.integers({"eos_token_id"}, kMostId));
  }
  if (!config.bos_token_id) {
    SLUICE_ASSIGN_OR_RETURN(const int bos, fields.integer({"bos_token_id"}, 0, kMostId, -1));
    if (bos >= 0) config.bos_token_id = bos;
  }
  return {};
}

Status read_sampling(const Fields& fields, GenerationConfig& config) {
  constexpr double kAbsent = -1;
  SLUICE_ASSIGN_OR_RETURN(config.do_sample, fields.boolean({"do_sample"}, false));
  SLUICE_ASSIGN_OR_RETURN(const Field temperature, fields.find({"temperature"}));
  if (temperature.value != nullptr) {
    // transformers writes 0.0 for greedy too
    if (!temperature.value->is_number() || temperature.value->get<double>() < 0 ||
        temperature.value->get<double>() > 100) {
      return fields.wrong(temperature, "it must be a number from 0 to 100");
    }
    config.temperature = temperature.value->get<float>();
  }
  SLUICE_ASSIGN_OR_RETURN(const double top_p, fields.number({"top_p"}, {.above = 0, .max = 1}, kAbsent));
  if (top_p != kAbsent) config.top_p = static_cast<float>(top_p);
  SLUICE_ASSIGN_OR_RETURN(const int top_k, fields.integer({"top_k"}, 0, kMostId, -1));
  if (top_k >= 0) config.top_k = top_k;
  return {};
}

}  // namespace

Result<GenerationConfig> read_generation_config(const std::string& directory) {
  GenerationConfig config;
  const std::string path = directory + "/generation_config.json";
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json own, read_object(path));
  const Fields fields(own, path);
  SLUICE_RETURN_IF_ERROR(read_token_ids(fields, config));
  SLUICE_RETURN_IF_ERROR(read_sampling(fields, config));

  const std::string model_path = directory + "/config.json";
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json model, read_object(model_path));
  SLUICE_RETURN_IF_ERROR(read_token_ids(Fields(model, model_path), config));
  return config;
}

}  // namespace sluice::checkpoint
