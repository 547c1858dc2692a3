#include "fabric/handshake.h"

#include <fmt/core.h>

#include <utility>

namespace sluice::fabric {

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields identity(const Options& options, const Report& report) {
  return {{"rank", std::to_string(options.rank)},
          {"number of ranks", std::to_string(options.ranks)},
          {"epoch", std::to_string(options.epoch)},
          {"wire version", std::to_string(report.wire_version)},
          {"provider", report.provider},
          {"fabric", report.fabric_name},
          {"library", report.library_version},
          {"number of rails", std::to_string(report.rails)},
          {"dispatch slab bytes", std::to_string(options.slab_bytes[0])},
          {"combine slab bytes", std::to_string(options.slab_bytes[1])},
          {"guard pages", options.guard_pages ? "on" : "off"},
          {"stripe bytes", std::to_string(options.stripe_bytes)},
          {"proof bytes", std::to_string(options.proof_bytes)},
          {"attestation", fmt::format("{:016x}", report.attestation())}};
}

// "name=value" a line. A text that is not of this form yields fields that differ, which is all it takes.
std::string write_fields(const Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) text += name + "=" + value + "\n";
  return text;
}

std::string value_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.size() > name.size() && line.substr(0, name.size()) == name && line[name.size()] == '=') {
      return std::string(line.substr(name.size() + 1));
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return "absent";
}

}  // namespace

Status compare_ranks(const Options& options, const Report& report, Bootstrap& bootstrap, Deadline deadline) {
  const Fields mine = identity(options, report);
  SLUICE_ASSIGN_OR_RETURN(auto texts,
                          bootstrap.all_gather("fabric identities", write_fields(mine), deadline));
  for (size_t peer = 0; peer < texts.size(); ++peer) {
    if (value_of(texts[peer], "rank") != std::to_string(peer)) {
      return invalid_argument(
          fmt::format("the peer in place {} calls itself rank {}", peer, value_of(texts[peer], "rank")));
    }
    for (const auto& [name, value] : mine) {
      const std::string theirs = value_of(texts[peer], name);
      if (name == "rank" || theirs == value) continue;
      return invalid_argument(
          fmt::format("{} must be equal on all ranks: it is {} on rank {} and {} on rank {}", name, value,
                      options.rank, theirs, peer));
    }
  }
  if (texts.size() != static_cast<size_t>(options.ranks)) {
    return invalid_argument(fmt::format("the bootstrap brought {} ranks together; rank {} expects {}",
                                        texts.size(), options.rank, options.ranks));
  }
  return {};
}

Result<std::vector<std::string>> gather_or_fail(Bootstrap& bootstrap, std::string_view name,
                                                Result<std::string> mine, int rank, Deadline deadline) {
  // The first byte says which it is: '+' a value, '-' an error.
  std::string text = mine.ok() ? "+" + mine.value() : "-" + mine.status().message();
  SLUICE_ASSIGN_OR_RETURN(auto texts, bootstrap.all_gather(name, std::move(text), deadline));
  if (!mine.ok()) return mine.status().with_context(fmt::format("rank {}", rank));
  for (size_t peer = 0; peer < texts.size(); ++peer) {
    if (texts[peer].empty() || texts[peer][0] != '+') {
      return unavailable(
          fmt::format("rank {}: {}", peer, texts[peer].empty() ? "sent nothing" : texts[peer].substr(1)));
    }
    texts[peer].erase(0, 1);
  }
  return texts;
}

Status all_agree(Bootstrap& bootstrap, std::string_view name, const Status& mine, int rank,
                 Deadline deadline) {
  Result<std::string> value = mine.ok() ? Result<std::string>(std::string()) : Result<std::string>(mine);
  return gather_or_fail(bootstrap, name, std::move(value), rank, deadline).status();
}

}  // namespace sluice::fabric
