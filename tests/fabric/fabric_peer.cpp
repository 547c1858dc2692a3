// A rank in a process of its own, for tests that kill it: exchanges for ever; when that ends for any reason
// it stays, with its fabric open, until it is killed.
//   fabric_peer FOLDER PROVIDER RANK RANKS
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "exchange_loop.h"
#include "file_bootstrap.h"

int main(int argc, char** argv) {
  using namespace sluice::fabric;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc != 5) return 2;
  const Options options = loop_options(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  FileBootstrap bootstrap(argv[1], options.rank, options.ranks);
  auto fabric = Fabric::open(options, bootstrap);
  if (!fabric.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", options.rank, fabric.status().message().c_str());
    return 1;
  }
  for (uint64_t seq = 0;
       exchange_bytes(**fabric, seq, sluice::Deadline::after(sluice::seconds(60))) == Wait::ready; ++seq) {
  }
  while (true) pause();
}
