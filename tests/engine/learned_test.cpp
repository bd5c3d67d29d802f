// What an engine learned, as its file has it: drafts by their place, and files that are not ours.
#include "engine/learned.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace reprise::engine::learned_test {
namespace {

using Counts = std::vector<int64_t>;

Counts verified_of(const DraftRecord& record, std::string_view by) {
  Counts out;
  for (const DraftRecord::Place& p : record.all().find(by)->second) out.push_back(p.verified);
  return out;
}

Counts accepted_of(const DraftRecord& record, std::string_view by) {
  Counts out;
  for (const DraftRecord::Place& p : record.all().find(by)->second) out.push_back(p.accepted);
  return out;
}

TEST(DraftRecord, CountsByDrafterAndPlace) {
  DraftRecord record;
  record.add("NGRAM", Counts{5, 3}, Counts{4, 1});
  record.add("NGRAM", Counts{2, 2, 1}, Counts{1, 0, 0});
  record.add("EAGLE", Counts{7}, Counts{7});
  EXPECT_EQ(verified_of(record, "NGRAM"), (Counts{7, 5, 1}));
  EXPECT_EQ(accepted_of(record, "NGRAM"), (Counts{5, 1, 0}));
  EXPECT_EQ(verified_of(record, "EAGLE"), Counts{7});
  EXPECT_EQ(record.all().size(), 2u);
}

TEST(DraftRecord, HasBounds) {
  DraftRecord record;
  record.add("NGRAM", Counts(200, 1), Counts(200, 1));
  EXPECT_EQ(verified_of(record, "NGRAM").size(), DraftRecord::kMostPlaces);
  for (int i = 0; i < 100; ++i) record.add(std::to_string(i), Counts{1}, Counts{1});
  EXPECT_EQ(record.all().size(), DraftRecord::kMostKinds);
  // Older drafts count for less: half of a million came true, then all do.
  DraftRecord many;
  many.add("NGRAM", Counts{DraftRecord::kMany}, Counts{DraftRecord::kMany / 2});
  for (int i = 0; i < 8; ++i) many.add("NGRAM", Counts{DraftRecord::kMany}, Counts{DraftRecord::kMany});
  const auto share = [&] {
    return static_cast<double>(accepted_of(many, "NGRAM")[0]) / static_cast<double>(verified_of(many, "NGRAM")[0]);
  };
  EXPECT_GT(share(), 0.99);
  EXPECT_LE(verified_of(many, "NGRAM")[0], DraftRecord::kMany);
}

class LearnedFile : public testing::Test {
 protected:
  LearnedFile() : path_(testing::TempDir() + "/reprise-learned-" + std::to_string(::getpid()) + ".json") {}
  ~LearnedFile() override { std::filesystem::remove(path_); }

  // With these drafts, as text; nothing of them where there is none.
  Result<Learned> load(const std::string& drafts, const std::string& version = "2") {
    const std::string phase = R"({"times": [["replay", 4, 12.5, 9]], "traffic": [[4, 9]]})";
    std::ofstream(path_) << R"({"version": )" << version << R"(, "decode": )" << phase << R"(, "prefill": )" << phase
                         << (drafts.empty() ? "" : R"(, "drafts": )" + drafts) << "}";
    return load_learned(path_);
  }

  std::string path_;
};

TEST_F(LearnedFile, HasDraftsByTheirPlace) {
  const auto learned = load(R"({"NGRAM": [[10, 7], [8, 7], [8, 0]], "MTP": []})");
  ASSERT_TRUE(learned.is_ok()) << learned.status().message();
  EXPECT_EQ(verified_of(learned->drafts, "NGRAM"), (Counts{10, 8, 8}));
  EXPECT_EQ(accepted_of(learned->drafts, "NGRAM"), (Counts{7, 7, 0}));
  EXPECT_EQ(learned->drafts.all().size(), 1u);  // one without places says nothing
  EXPECT_EQ(learned->phases[0].times.size(), 1u);
  // Written before there were any.
  const auto old = load("", "1");
  ASSERT_TRUE(old.is_ok()) << old.status().message();
  EXPECT_TRUE(old->drafts.all().empty());
  EXPECT_EQ(old->phases[0].traffic.size(), 1u);
}

TEST_F(LearnedFile, WhatCannotBeIsRefused) {
  std::string kinds;
  for (size_t i = 0; i <= DraftRecord::kMostKinds; ++i)
    kinds += (i ? ", \"" : "\"") + std::to_string(i) + "\": [[1, 1]]";
  std::string places = "[1, 1]";
  for (size_t i = 0; i < DraftRecord::kMostPlaces; ++i) places += ", [1, 1]";
  for (const std::string& drafts : std::vector<std::string>{
           "", "7", "[]", R"({"NGRAM": 7})", R"({"": [[1, 1]]})", R"({"NGRAM": [7]})", R"({"NGRAM": [[1]]})",
           R"({"NGRAM": [[1, 2]]})",          // more came true than were verified
           R"({"NGRAM": [[-1, -1]]})",        //
           R"({"NGRAM": [[1.5, 1]]})",        //
           R"({"NGRAM": [[5, 3], [6, 3]]})",  // a later place was verified more often
           R"({"NGRAM": [[5, 3], [5, 4]]})",  // and came true more often
           R"({"NGRAM": [[18446744073709551615, 1]]})", "{\"" + std::string(33, 'n') + "\": [[1, 1]]}",
           "{" + kinds + "}", R"({"NGRAM": [)" + places + "]}"}) {
    const auto learned = load(drafts);
    EXPECT_FALSE(learned.is_ok()) << drafts;
    EXPECT_EQ(learned.status().code(), Code::Invalid) << drafts;
    EXPECT_NE(learned.status().message().find(path_), std::string::npos) << learned.status().message();
  }
  for (const char* version : {"0", "3", "\"2\"", "null", "1.5", "-1"}) {
    const auto learned = load("{}", version);
    ASSERT_FALSE(learned.is_ok()) << version;
    EXPECT_NE(learned.status().message().find("version 1 to 2"), std::string::npos) << learned.status().message();
  }
}

}  // namespace
}  // namespace reprise::engine::learned_test
