// What every Stream and Event must do (device/stream.h).
#include <cstring>

#include "device/conformance.h"

namespace reprise::conformance::stream_conformance_test {
namespace {

REPRISE_CONFORMANCE(StreamOrder);

constexpr size_t kN = 1037;

LiveSizes sizes(int64_t first) {
  LiveSizes live;
  live.value[1] = first;
  return live;
}

TEST_P(StreamOrder, LaunchesRunInOrder) {
  const Buffer x = floats(kN), y = floats(kN);
  write(x, ramp(kN));
  EXPECT_OK(stream->launch(add(x, y, Dim(kN), 1)));
  EXPECT_OK(stream->launch(scale(y, y, Dim(kN), 2)));
  EXPECT_OK(stream->launch(add(y, x, Dim(kN), 3)));
  EXPECT_OK(stream->launch(copy(x, y, Dim(kN))));
  EXPECT_OK(stream->launch(scale(y, x, Dim(kN), 0)));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(y), ramp(kN, [](float v) { return (v + 1) * 2 + 3; }));
  EXPECT_EQ(read(x), std::vector<float>(kN, 0));
}

TEST_P(StreamOrder, CopiesKeepTheirPlaceAmongLaunches) {
  const Buffer x = floats(kN), y = floats(kN), z = floats(kN);
  const Buffer in = device->host_pool().allocate(x.size(), "in").value();
  const Buffer out = device->host_pool().allocate(x.size(), "out").value();
  std::memcpy(in.data(), ramp(kN).data(), in.size());
  EXPECT_OK(stream->copy(x.data(), in.data(), x.size(), Copy::HostToDevice));
  EXPECT_OK(stream->launch(add(x, y, Dim(kN), 4)));
  EXPECT_OK(stream->copy(z.data(), y.data(), z.size(), Copy::DeviceToDevice));
  EXPECT_OK(stream->launch(scale(y, y, Dim(kN), 0)));
  EXPECT_OK(stream->copy(out.data(), z.data(), out.size(), Copy::DeviceToHost));
  EXPECT_OK(stream->launch(scale(z, z, Dim(kN), 0)));
  EXPECT_OK(stream->synchronize());
  std::vector<float> found(kN);
  std::memcpy(found.data(), out.data(), out.size());
  EXPECT_EQ(found, ramp(kN, [](float v) { return v + 4; }));
  EXPECT_EQ(read(z), std::vector<float>(kN, 0));
}

TEST_P(StreamOrder, NothingIsAlsoWork) {
  const Buffer x = floats(kN);
  write(x, ramp(kN));
  EXPECT_OK(stream->copy(nullptr, nullptr, 0, Copy::DeviceToDevice));
  stream->set_live_sizes(sizes(0));
  EXPECT_OK(stream->launch(add(x, x, Dim(7, 1), 1)));
  EXPECT_OK(stream->synchronize());
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(x), ramp(kN));
}

TEST_P(StreamOrder, ALaunchKeepsTheSizesItWasMadeWith) {
  const Buffer x = floats(40);
  stream->set_live_sizes(sizes(11));
  EXPECT_OK(stream->launch(add(x, x, Dim(3, 1), 1)));
  stream->set_live_sizes(sizes(5));
  EXPECT_OK(stream->launch(add(x, x, Dim(3, 1), 2)));
  stream->set_live_sizes(sizes(13));
  EXPECT_OK(stream->synchronize());
  std::vector<float> expected(40, 0);
  for (size_t i = 0; i < 33; ++i) expected[i] = i < 15 ? 3 : 1;
  EXPECT_EQ(read(x), expected);
}

TEST_P(StreamOrder, ALaunchKeepsTheArgumentsItWasMadeWith) {
  const Buffer x = floats(kN);
  Thunk t = add(x, x, Dim(kN), 1);
  EXPECT_OK(stream->launch(t));
  t.args.scalar[0] = 100;
  t.args.dim[0] = Dim(1);
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(x), std::vector<float>(kN, 1));
}

TEST_P(StreamOrder, HostSeesDeviceMemoryWhereItSaysSo) {
  if (!info().host_visible) GTEST_SKIP() << "the host does not see this device's memory";
  const Buffer x = floats(kN), y = floats(kN);
  std::memcpy(x.data(), ramp(kN).data(), x.size());
  EXPECT_OK(stream->launch(add(x, y, Dim(kN), 1)));
  if (info().asynchronous) EXPECT_OK(stream->synchronize());
  EXPECT_EQ(y.as<float>()[kN - 1], static_cast<float>(kN) + 0.5f);
}

TEST_P(StreamOrder, EventsOrderStreams) {
  const Buffer x = floats(kN), y = floats(kN), z = floats(kN);
  write(x, ramp(kN));
  auto other = new_stream();
  auto ready = device->make_event().value(), back = device->make_event().value();
  for (int i = 0; i < 20; ++i) {  // there and back
    EXPECT_OK(stream->launch(add(x, y, Dim(kN), 1)));
    EXPECT_OK(stream->record(*ready));
    EXPECT_OK(other->wait(*ready));
    EXPECT_OK(other->launch(add(y, x, Dim(kN), 1)));
    EXPECT_OK(other->record(*back));
    EXPECT_OK(stream->wait(*back));
  }
  EXPECT_OK(stream->launch(copy(x, z, Dim(kN))));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(z), ramp(kN, [](float v) { return v + 40; }));
}

TEST_P(StreamOrder, AnEventMarksAPointNotAStream) {
  const Buffer x = floats(kN), y = floats(kN);
  auto other = new_stream();
  auto event = device->make_event().value();
  EXPECT_OK(other->wait(*event));  // never recorded: holds up nothing
  EXPECT_OK(other->synchronize());
  EXPECT_OK(stream->launch(add(x, x, Dim(kN), 1)));
  EXPECT_OK(stream->record(*event));
  EXPECT_OK(stream->launch(add(x, x, Dim(kN), 1)));
  EXPECT_OK(stream->record(*event));  // moves the mark
  EXPECT_OK(other->wait(*event));
  EXPECT_OK(other->launch(copy(x, y, Dim(kN))));
  EXPECT_OK(other->synchronize());
  EXPECT_EQ(read(y), std::vector<float>(kN, 2));
}

TEST_P(StreamOrder, AnEventOutlivesItsStream) {
  const Buffer x = floats(kN);
  auto event = device->make_event().value();
  {
    auto gone = new_stream();
    EXPECT_OK(gone->launch(add(x, x, Dim(kN), 1)));
    EXPECT_OK(gone->record(*event));
  }
  EXPECT_OK(stream->wait(*event));
  EXPECT_OK(stream->launch(add(x, x, Dim(kN), 1)));
  EXPECT_OK(stream->synchronize());
  EXPECT_EQ(read(x), std::vector<float>(kN, 2));
}

TEST_P(StreamOrder, CountsWhatWasAsked) {
  const Buffer x = floats(kN), host = device->host_pool().allocate(x.size(), "host").value();
  EXPECT_OK(stream->copy(x.data(), host.data(), x.size(), Copy::HostToDevice));
  EXPECT_OK(stream->copy(x.data(), host.data(), 8, Copy::HostToDevice));
  EXPECT_OK(stream->copy(x.data(), x.as<float>() + 2, 8, Copy::DeviceToDevice));
  for (int i = 0; i < 3; ++i) EXPECT_OK(stream->copy(host.data(), x.data(), x.size(), Copy::DeviceToHost));
  for (int i = 0; i < 4; ++i) EXPECT_OK(stream->launch(add(x, x, Dim(kN), 1)));
  EXPECT_OK(stream->synchronize());
  const StreamStats s = stream->stats();
  EXPECT_EQ(s.copies_to_device, 2u);
  EXPECT_EQ(s.copies_on_device, 1u);
  EXPECT_EQ(s.copies_to_host, 3u);
  EXPECT_EQ(s.launches, 4u);
  EXPECT_EQ(s.replays, 0u);
}

}  // namespace
}  // namespace reprise::conformance::stream_conformance_test
