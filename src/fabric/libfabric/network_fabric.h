// The providers that libfabric drives: "tcp", "efa", "efa-direct".
#pragma once

#include <memory>

#include "fabric/bootstrap.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

Result<std::unique_ptr<Fabric>> open_network(const Options& options, Bootstrap& bootstrap);

}  // namespace sluice::fabric
