#include "fabric/slab.h"

#include <fmt/core.h>

namespace sluice::fabric {

std::string_view kind_name(Kind kind) { return kind == Kind::dispatch ? "dispatch" : "combine"; }

Status check_slab_header(const SlabHeader& header, int source, Kind kind, uint64_t epoch, uint64_t seq,
                         size_t slab_bytes) {
  const auto differs = [&](std::string_view what, uint64_t found, std::string_view relation,
                           uint64_t expected) {
    return data_loss(fmt::format("header of {} {} from rank {}: {} is {}, expected {}{}", kind_name(kind),
                                 seq, source, what, found, relation, expected));
  };
  if (header.magic != kSlabMagic) return differs("magic", header.magic, "", kSlabMagic);
  if (header.source != static_cast<uint32_t>(source)) {
    return differs("source", header.source, "", static_cast<uint64_t>(source));
  }
  if (header.epoch != epoch) return differs("epoch", header.epoch, "", epoch);
  if (header.seq != seq) return differs("seq", header.seq, "", seq);
  if (header.parts != 1) return differs("parts", header.parts, "", 1);
  if (header.bytes > slab_bytes) return differs("bytes", header.bytes, "at most ", slab_bytes);
  return {};
}

}  // namespace sluice::fabric
