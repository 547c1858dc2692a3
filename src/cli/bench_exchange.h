// `sluice bench exchange`.
#pragma once

namespace CLI {
class App;
}

namespace sluice::cli {

void add_bench_exchange(CLI::App& bench, int& status);

}  // namespace sluice::cli
