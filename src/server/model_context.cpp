#include "server/model_context.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/config.h"

namespace sluice::server {
namespace {

std::string last_component(const std::string& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

// FNV-1a: it only has to differ where what is served differs.
std::string fingerprint_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return fmt::format("fp_{:010x}", hash & 0xffffffffffU);
}

Status load_text(const std::string& directory, ModelContext& context) {
  const std::string file = directory + "/tokenizer.json";
  if (!std::filesystem::exists(file)) {
    log::warning("{} does not exist: prompts are taken as token ids only", file);
    return {};
  }
  SLUICE_ASSIGN_OR_RETURN(context.tokenizer, text::Tokenizer::load(file));
  if (context.tokenizer->vocab_size() > context.vocab_size) {
    return invalid_argument(
        fmt::format("{}: the tokenizer has {} ids, but vocab_size in {}/config.json is {}: they do "
                    "not belong together",
                    file, context.tokenizer->vocab_size(), directory, context.vocab_size));
  }
  auto chat_template = text::ChatTemplate::load(directory);
  if (chat_template.ok()) {
    context.chat_template = std::move(chat_template).value();
  } else if (chat_template.status().code() == Code::not_found) {
    log::warning("{}: no chat template: /v1/chat/completions is refused", directory);
  } else {
    return chat_template.status();
  }
  return {};
}

}  // namespace

Result<ModelContext> load_model_context(const std::string& directory, const std::string& served_name,
                                        int max_model_len) {
  SLUICE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig config, checkpoint::read_model_config(directory));
  SLUICE_ASSIGN_OR_RETURN(const checkpoint::GenerationConfig generation,
                          checkpoint::read_generation_config(directory));
  ModelContext context;
  context.served_name = served_name.empty() ? last_component(directory) : served_name;
  context.aliases = {directory};
  context.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  context.fingerprint = fingerprint_of(
      fmt::format("{}/{}/{}/{}", directory, config.layers, config.hidden_size, config.vocab_size));
  context.vocab_size = config.vocab_size;
  context.max_model_len = max_model_len > 0 ? max_model_len : config.max_position_embeddings;
  context.temperature = generation.temperature;
  context.top_p = generation.top_p;
  context.top_k = generation.top_k;
  SLUICE_RETURN_IF_ERROR(load_text(directory, context));
  return context;
}

}  // namespace sluice::server
