// The SLUICE_* environment variables: a known one is applied, an unknown one is an error.
#pragma once

#include "base/status.h"

namespace sluice::cli {

// `environment` is null-terminated, as environ is.
Status apply_environment(char** environment);

}  // namespace sluice::cli
