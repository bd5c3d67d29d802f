// Messages of another host given to a link: whatever they hold, the link takes or refuses them, writes nothing of the
// ranks of its own host, and ends. A message is a byte for its kind, one for its rank, one for its number, two for the
// length of what is behind the frame, and that; kind 0: the bytes are the whole message.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

#include "ranks/link.h"

using namespace reprise::ranks;

namespace {

std::deque<std::string> waiting;
int any = 0;

constexpr reprise_wire kWire{
    .version = REPRISE_WIRE_VERSION,
    .start = nullptr,
    .send = [](int32_t, const void*, size_t) -> void* { return &any; },
    .receive = [](int32_t, void* data, size_t bytes) -> void* {
      if (bytes > 0) std::memcpy(data, waiting.front().data(), bytes);
      waiting.pop_front();
      return &any;
    },
    .next = [](int32_t) { return waiting.empty() ? int64_t{-1} : static_cast<int64_t>(waiting.front().size()); },
    .done = [](void*) { return 1; },
    .finish = nullptr};

void add_message(uint8_t kind, uint8_t rank, uint8_t number, std::string_view payload) {
  Link::Frame frame;
  frame.kind = static_cast<Link::Kind>(kind);
  frame.rank = rank;
  frame.number = number;
  frame.bytes = payload.size();
  std::string message = kind == 0 ? "" : std::string(reinterpret_cast<const char*>(&frame), sizeof frame);
  waiting.push_back(message.append(payload));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  waiting.clear();
  while (size >= 5) {
    const size_t length = std::min<size_t>(size - 5, data[3] | size_t{data[4]} << 8);
    add_message(data[0], data[1], data[2], {reinterpret_cast<const char*>(data) + 5, length});
    data += 5 + length;
    size -= 5 + length;
  }
  // Rank 1 is here; rank 0, the front, and rank 2 are on the other host.
  auto region = Region::create(3);
  if (!region.is_ok()) return 0;
  const World world{.rank = 1, .size = 3, .local_rank = 0, .local_size = 1};
  Link link(**region, world, {0, 1, 0}, kWire, std::chrono::hours(1));
  for (size_t left = waiting.size() + 1; left > 0; --left) link.turn();
  const Control& c = (*region)->control();
  const bool own = c.line[1].epoch == 0 && c.line[1].done == 0 && c.line[1].cards == 0 && c.card[1].bytes == 0;
  if (!own || c.magic != Control::kMagic || c.size != 3) std::abort();
  return 0;
}
