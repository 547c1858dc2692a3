// How the command line checks whole numbers.
#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace sluice::cli {

// Checks before CLI11 converts, so that a word where a number belongs gets the same answer as a wrong number.
CLI::Validator whole_number(int64_t least, int64_t most);

}  // namespace sluice::cli
