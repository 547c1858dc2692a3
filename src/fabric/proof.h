// The proof of transport: before anything else, every pair is connected, a known number of bytes moves each
// way, every byte is compared, and what each side counted must agree.
#pragma once

#include "base/status.h"
#include "fabric/bootstrap.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

// Collective. Every error names the rank.
Status prove_transport(Fabric& fabric, const Options& options, Bootstrap& bootstrap, Deadline deadline);

}  // namespace sluice::fabric
