// Writing and checking what stands at the front of a slab.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "fabric/fabric.h"
#include "fabric/wire.h"

namespace sluice::fabric {

constexpr int half_of(uint64_t seq) { return static_cast<int>(seq & 1); }

std::string_view kind_name(Kind kind);

constexpr SlabHeader slab_header(int source, uint64_t epoch, uint64_t seq, size_t bytes) {
  return {.magic = kSlabMagic,
          .source = static_cast<uint32_t>(source),
          .epoch = epoch,
          .seq = seq,
          .bytes = bytes,
          .parts = 1,
          .reserved = {}};
}

// Whether a header that arrived is the one of (source, kind, seq) in this epoch and its payload fits the
// slab; otherwise data_loss with the value found and the value expected.
Status check_slab_header(const SlabHeader& header, int source, Kind kind, uint64_t epoch, uint64_t seq,
                         size_t slab_bytes);

}  // namespace sluice::fabric
