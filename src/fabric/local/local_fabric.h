// The "local" provider: every peer's window is mapped memory.
#pragma once

#include <memory>

#include "fabric/bootstrap.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

Result<std::unique_ptr<Fabric>> open_local(const Options& options, Bootstrap& bootstrap);

}  // namespace sluice::fabric
