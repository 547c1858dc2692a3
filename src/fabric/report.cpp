#include "fabric/report.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace sluice::fabric {

uint64_t Report::attestation() const {
  const std::string identity =
      fmt::format("{}\n{}\n{}\n{}\n{}\n", provider, fabric_name, library_version, rails, wire_version);
  return XXH3_64bits(identity.data(), identity.size());
}

}  // namespace sluice::fabric
