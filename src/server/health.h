// The verdict on the cluster, as /ready and /health say it.
#pragma once

#include <string>

#include "cluster/engine_client.h"

namespace sluice::server {

// The body of /health. `endpoints` and `instances` are as NVIDIA Dynamo's probes expect them, and empty
// unless the cluster is ready.
std::string health_json(const cluster::Health& health, const std::string& model);

}  // namespace sluice::server
