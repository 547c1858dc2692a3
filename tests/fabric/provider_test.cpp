// Choosing a provider: exactly the one that was asked for, or an error with those there are.
#include "fabric/libfabric/provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/fabric.h"

namespace sluice::fabric::ofi {
namespace {

using testing::HasSubstr;

TEST(Provider, TcpIsTheDatagramLayerOnOldLibrariesAndItselfOnNewOnes) {
  ASSERT_EQ(wanted("tcp", FI_VERSION(1, 17)).size(), 1u);
  EXPECT_EQ(wanted("tcp", FI_VERSION(1, 17))[0].provider, "tcp;ofi_rxm");
  EXPECT_EQ(wanted("tcp", FI_VERSION(1, 18))[0].provider, "tcp");
  EXPECT_EQ(wanted("tcp", FI_VERSION(2, 6))[0].provider, "tcp");
  EXPECT_EQ(wanted("efa-direct", FI_VERSION(2, 4))[0].fabric, "efa-direct");
  EXPECT_EQ(wanted("efa", FI_VERSION(2, 4))[0].fabric, "efa");
  EXPECT_TRUE(wanted("verbs", FI_VERSION(2, 4)).empty());
}

TEST(Provider, MatchesByBothNamesExactly) {
  Info info(fi_allocinfo());
  EXPECT_FALSE(matches(*info, {"efa", "efa"}));
  info->fabric_attr->prov_name = strdup("efa");
  info->fabric_attr->name = strdup("efa");
  EXPECT_TRUE(matches(*info, {"efa", "efa"}));
  EXPECT_FALSE(matches(*info, {"efa", "efa-direct"}));
  EXPECT_FALSE(matches(*info, {"efa;ofi_rxd", {}}));
  EXPECT_TRUE(matches(*info, {"efa", {}}));
}

TEST(Provider, TcpIsThere) {
  auto info = choose("tcp", "127.0.0.1");
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_TRUE(matches(**info, wanted("tcp", fi_version())[0]));
  EXPECT_EQ((*info)->next, nullptr);
}

// On a machine with EFA these open; here they must say what there is instead.
TEST(Provider, EfaFailsAtOnceWithTheListWhereThereIsNone) {
  for (const std::string name : {"efa", "efa-direct"}) {
    if (choose(name, "").ok()) GTEST_SKIP() << "this machine has " << name;
    InProcessHub hub(2);
    auto bootstrap = hub.join(0);
    Options options;
    options.provider = name;
    options.ranks = 2;
    // Rank 1 never comes: it must not be waited for.
    auto fabric = Fabric::open(options, *bootstrap);
    ASSERT_FALSE(fabric.ok());
    EXPECT_EQ(fabric.status().code(), Code::unavailable);
    EXPECT_THAT(fabric.status().message(), HasSubstr("fabric '" + name + "' was asked for, but libfabric"));
    EXPECT_THAT(fabric.status().message(), HasSubstr("It offers: "));
    EXPECT_THAT(fabric.status().message(), HasSubstr("tcp"));
  }
}

TEST(Provider, AnAddressThatIsNotOursIsRefused) {
  InProcessHub hub(1);
  auto bootstrap = hub.join(0);
  Options options;
  options.provider = "tcp";
  options.address = "192.0.2.1";
  auto fabric = Fabric::open(options, *bootstrap);
  ASSERT_FALSE(fabric.ok());
  EXPECT_THAT(fabric.status().message(), HasSubstr("192.0.2.1"));
}

}  // namespace
}  // namespace sluice::fabric::ofi
