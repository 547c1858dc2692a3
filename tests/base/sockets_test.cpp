#include "base/sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace sluice {
namespace {

struct Pair {
  UniqueFd here;
  UniqueFd there;
};

Pair make_pair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Deadline soon() { return Deadline::after(seconds(20)); }

TEST(Sockets, AFrameArrivesWholeHoweverLongItIs) {
  const Pair pair = make_pair();
  std::string sent(3 << 20, 'x');
  sent[12345] = 'y';
  std::thread sender([&] { EXPECT_TRUE(send_frame(pair.there.get(), sent, soon()).ok()); });
  const auto received = receive_frame(pair.here.get(), sent.size(), soon());
  sender.join();
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_TRUE(*received == sent);
}

TEST(Sockets, AFrameThatIsTooLongIsRefusedBeforeItIsRead) {
  const Pair pair = make_pair();
  ASSERT_TRUE(send_frame(pair.there.get(), "0123456789", soon()).ok());
  const auto received = receive_frame(pair.here.get(), 9, soon());
  EXPECT_EQ(received.status().code(), Code::data_loss);
}

TEST(Sockets, AnEndInTheMiddleOfAFrameIsAnError) {
  Pair pair = make_pair();
  const char announced[] = {0, 0, 0, 8, 'h', 'a', 'l', 'f'};
  ASSERT_EQ(::send(pair.there.get(), announced, sizeof(announced), 0), 8);
  pair.there.reset();
  EXPECT_EQ(receive_frame(pair.here.get(), 100, soon()).status().code(), Code::unavailable);
}

TEST(Sockets, AWaitEndsAtItsDeadline) {
  const Pair pair = make_pair();
  EXPECT_EQ(receive_frame(pair.here.get(), 100, Deadline::after(milliseconds(20))).status().code(),
            Code::deadline_exceeded);
}

TEST(Sockets, APortInUseIsAnErrorThatNamesIt) {
  const auto first = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto port = port_of(*first);
  ASSERT_TRUE(port.ok());
  const auto second = listen_tcp("127.0.0.1", *port);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(std::to_string(*port)), std::string::npos)
      << second.status().message();
}

TEST(Sockets, ConnectingWaitsForTheListener) {
  const std::string path = testing::TempDir() + "sluice-sockets-test-" + std::to_string(::getpid());
  Result<UniqueFd> connected = internal_error("not yet");
  std::thread client([&] { connected = connect_unix(path, soon()); });
  const auto listener = listen_unix(path);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_TRUE(accept_connection(*listener, soon()).ok());
  client.join();
  EXPECT_TRUE(connected.ok()) << connected.status().message();
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace sluice
