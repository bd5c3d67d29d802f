// Ranks of several hosts: collectives, messages, cards and aborts arrive as on one host, over a wire in memory.
#include "ranks/link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "support/ranked_hosts.h"
#include "support/soon.h"

namespace reprise::ranks {
namespace {

using testing_support::MemoryWire;
using testing_support::RankedHosts;
using testing_support::soon;

// The byte that a rank writes at a place of a round.
uint8_t byte_of(int round, int rank, uint64_t row, uint64_t column) {
  return static_cast<uint8_t>(round * 31 + rank * 7 + static_cast<int>(row) * 3 + static_cast<int>(column) + 1);
}

const std::vector<std::vector<int>> kHosts = {{1, 1}, {2, 1}, {1, 1, 1}, {2, 3, 1}};

// Columns of all ranks side by side, of widths that differ, at places that change, for many rounds.
TEST(Link, ColumnsOfAllHostsCome) {
  for (const auto& hosts : kHosts) {
    const RankedHosts world(hosts);
    world.run([&](Member& m) {
      const int size = m.world().size;
      for (int round = 0; round < 60; ++round) {
        const uint64_t rows = static_cast<uint64_t>(round % 5), of = static_cast<uint64_t>(size * (size + 1) / 2) * 3;
        const auto first = [](int rank) { return static_cast<uint64_t>(rank * (rank + 1) / 2) * 3; };
        const uint64_t at = static_cast<uint64_t>(round % 3) * 4096;
        uint8_t* out = m.region().arena() + at;
        const int mine = m.world().rank;
        for (uint64_t row = 0; row < rows; ++row)
          for (uint64_t c = first(mine); c < first(mine + 1); ++c) out[row * of + c] = byte_of(round, mine, row, c);
        m.meet(0, {.at = at, .of = of, .row_end = rows, .first = first(mine), .width = first(mine + 1) - first(mine)});
        for (uint64_t row = 0; row < rows; ++row)
          for (int rank = 0; rank < size; ++rank)
            for (uint64_t c = first(rank); c < first(rank + 1); ++c)
              ASSERT_EQ(out[row * of + c], byte_of(round, rank, row, c)) << round << " " << rank;
      }
    });
    EXPECT_FALSE(world.member(0)->aborted()) << world.member(0)->lost().message();
  }
}

// Each row is one rank's, another one in every round; two such collectives follow each other at once.
TEST(Link, OwnedRowsOfAllHostsCome) {
  for (const auto& hosts : kHosts) {
    const RankedHosts world(hosts);
    world.run([&](Member& m) {
      const int size = m.world().size, mine = m.world().rank;
      constexpr uint64_t kRows = 37, kOf = 5;
      for (int round = 0; round < 90; ++round) {
        const auto owner = [&](uint64_t row) {
          return static_cast<int>(row * 5 + static_cast<uint64_t>(round)) % size;
        };
        const uint64_t at = static_cast<uint64_t>(round % 2) * 4096, epoch = m.next_epoch(0);
        uint8_t* out = m.region().arena() + at;
        for (uint64_t row = 0; row < kRows; ++row) {
          if (owner(row) != mine) continue;
          m.region().marks(epoch)[row] = owner_mark(epoch, mine);
          for (uint64_t c = 0; c < kOf; ++c) out[row * kOf + c] = byte_of(round, mine, row, c);
        }
        m.meet(0, {.at = at, .of = kOf, .row_end = kRows, .owned = 1});
        for (uint64_t row = 0; row < kRows; ++row)
          for (uint64_t c = 0; c < kOf; ++c)
            ASSERT_EQ(out[row * kOf + c], byte_of(round, owner(row), row, c)) << round << " " << row;
      }
    });
    EXPECT_FALSE(world.member(0)->aborted()) << world.member(0)->lost().message();
  }
}

TEST(Link, StepsCarryTheirInputs) {
  const RankedHosts world({1, 2});
  world.run([](Member& m) {
    constexpr int kSteps = 50;
    constexpr size_t kAt = 8192, kBytes = 300;
    uint8_t* inputs = m.region().arena() + kAt;
    if (m.world().front()) {
      for (int step = 1; step <= kSteps; ++step) {
        std::memset(inputs, step, kBytes);
        ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Step, .size = step}, {inputs, kBytes}).is_ok());
        ASSERT_TRUE(m.await_followers().is_ok());
      }
      ASSERT_TRUE(m.publish({.kind = StepMessage::Kind::Stop}).is_ok());
      EXPECT_TRUE(m.ended_in_order());
      return;
    }
    for (int step = 1; step <= kSteps; ++step) {
      const auto message = m.next();
      ASSERT_TRUE(message.is_ok()) << message.status().message();
      ASSERT_EQ(message->size, step);
      for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(inputs[i], step);
      m.done();
    }
    EXPECT_EQ(m.next()->kind, StepMessage::Kind::Stop);
  });
}

TEST(Link, CardsOfAllHostsAreShown) {
  for (const auto& hosts : kHosts) {
    const RankedHosts world(hosts);
    world.run([](Member& m) {
      for (int round = 0; round < 10; ++round) {
        const auto all = m.show(fmt::format("rank {} round {}", m.world().rank, round));
        ASSERT_TRUE(all.is_ok()) << all.status().message();
        for (int r = 0; r < m.world().size; ++r)
          ASSERT_EQ((*all)[static_cast<size_t>(r)], fmt::format("rank {} round {}", r, round));
      }
    });
  }
}

TEST(Link, AnAbortReachesAllHosts) {
  const RankedHosts world({1, 1, 2});
  world.run([](Member& m) {
    if (m.world().rank == 2) return m.abort("rank 3 (process 7 on host c) ended");
    m.meet(0);
    EXPECT_EQ(m.lost().message(), "rank 3 (process 7 on host c) ended");
  });
}

TEST(Link, AHostThatIsSilentEndsTheWorld) {
  const RankedHosts world({1, 1}, std::chrono::milliseconds(200));
  world.run([](Member& m) { ASSERT_TRUE(m.show("a card").is_ok()); });
  MemoryWire::pull_the_cable();
  EXPECT_TRUE(soon([&] { return world.member(0)->aborted() && world.member(1)->aborted(); }));
  for (const int rank : {0, 1}) {
    const std::string why = world.member(rank)->lost().message();
    EXPECT_NE(why.find(fmt::format("(rank {}) has not been heard of for", 1 - rank)), std::string::npos) << why;
  }
}

// What comes from another host is checked like a request: nothing is written outside of the arena.
TEST(Link, PartsThatDoNotFitEndTheWorld) {
  const uint64_t arena = (*Region::create(2))->arena_bytes();
  const Part wrong[] = {
      {.at = arena, .of = 8, .row_end = 1, .width = 8},    {.at = arena - 8, .of = 8, .row_end = 2, .width = 8},
      {.of = 8, .row_end = 1, .first = 4, .width = 5},     {.of = 0, .row_end = 1},
      {.of = UINT64_MAX, .row_end = 3, .width = 1},        {.of = 2, .row_begin = 3, .row_end = 2, .width = 1},
      {.of = 1, .row_end = Region::kMarks + 1, .owned = 1}};
  for (const Part& part : wrong) {
    const RankedHosts world({1, 1});
    world.run([&](Member& m) { m.meet(0, m.world().rank == 1 ? part : Part()); });
    EXPECT_NE(world.member(0)->lost().message().find("the part of rank 1"), std::string::npos);
  }
}

// Messages that no link of ours sends, as from rank 1.
std::string refusal_of(Link::Frame frame, const std::vector<uint8_t>& payload) {
  const RankedHosts world({1, 1});
  frame.rank = 1;
  frame.bytes = payload.size();
  std::vector<uint8_t> message(sizeof frame + payload.size());
  std::memcpy(message.data(), &frame, sizeof frame);
  if (!payload.empty()) std::memcpy(message.data() + sizeof frame, payload.data(), payload.size());
  MemoryWire::be(1);
  MemoryWire::table().send(0, message.data(), message.size());
  EXPECT_TRUE(soon([&] { return world.member(0)->aborted(); }));
  return world.member(0)->lost().message();
}

std::vector<uint8_t> bytes_of(const Part& part, const std::vector<uint32_t>& words) {
  std::vector<uint8_t> out(sizeof part + words.size() * sizeof(uint32_t));
  std::memcpy(out.data(), &part, sizeof part);
  std::memcpy(out.data() + sizeof part, words.data(), words.size() * sizeof(uint32_t));
  return out;
}

TEST(Link, MessagesOfNoLinkEndTheWorld) {
  // A row of a part without rows, which is nowhere.
  const Part none{.at = UINT64_MAX / 2, .of = 8, .row_begin = 9, .row_end = 9, .owned = 1};
  EXPECT_NE(refusal_of({.kind = Link::Kind::Parts, .number = 1}, bytes_of(none, {1, 4, 0, 0})).find("ends too early"),
            std::string::npos);
  const Part some{.of = 8, .row_begin = 2, .row_end = 4, .owned = 1};
  EXPECT_NE(refusal_of({.kind = Link::Kind::Parts, .number = 1}, bytes_of(some, {1, 1, 0, 0})).find("ends too early"),
            std::string::npos);
  EXPECT_NE(refusal_of({.kind = Link::Kind::Step, .number = 1}, std::vector<uint8_t>(sizeof(StepMessage)))
                .find("a step that is not the front's"),
            std::string::npos);
  EXPECT_NE(refusal_of({.magic = 1}, {}).find("a message that is none"), std::string::npos);
  EXPECT_NE(refusal_of({.kind = static_cast<Link::Kind>(99)}, {}).find("a message of kind 99"), std::string::npos);
}

}  // namespace
}  // namespace reprise::ranks
