// Checkpoints appear whole or not at all, and damage is found, whatever byte it hits.
#include "formats/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/core/system/files.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

std::string save(const std::string& checkpoints, std::int64_t step, const std::string& content) {
  CheckpointWriter writer(checkpoints, step);
  write_file(writer.folder() + "/weights", content);
  write_file(writer.folder() + "/state", "the state of " + content);
  return writer.commit("{\"samples\":" + std::to_string(4 * step) + "}");
}

std::vector<std::string> names(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder))
    found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Checkpoint, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  const std::string path = save(folder.path("checkpoints"), 12, "abc");
  EXPECT_EQ(path, folder.path("checkpoints/step_000012"));
  EXPECT_EQ(names(path), (std::vector<std::string>{"checkpoint.json", "state", "weights"}));
  const Checkpoint checkpoint = read_checkpoint(path);
  EXPECT_EQ(checkpoint.step, 12);
  EXPECT_EQ(checkpoint.state, "{\"samples\":48}");
  EXPECT_EQ(checkpoint.path, path);
}

TEST(Checkpoint, IsNotThereBeforeItIsCommitted) {
  const TemporaryFolder folder;
  {
    CheckpointWriter writer(folder.path(), 3);
    write_file(writer.folder() + "/weights", "abc");
    EXPECT_TRUE(list_checkpoints(folder.path()).empty());
  }
  EXPECT_EQ(folder.entries(), 0) << "dropped, it leaves nothing";
}

TEST(Checkpoint, ClearsAwayWhatADeadProcessLeft) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path("step_000003.tmp/deep"));
  write_file(folder.path("step_000003.tmp/weights"), "half");
  save(folder.path(), 4, "abc");
  EXPECT_EQ(names(folder.path()), std::vector<std::string>{"step_000004"});
}

// Every single byte of every file, changed; and every file cut, grown and removed.
TEST(Checkpoint, FindsDamageInEveryByte) {
  const TemporaryFolder folder;
  const std::string path = save(folder.path(), 1, "some content");
  for (const std::string& name : names(path)) {
    const std::string file = path + "/" + name, content = read_file(file);
    for (std::size_t i = 0; i < content.size(); ++i) {
      std::string damaged = content;
      damaged[i] = static_cast<char>(damaged[i] ^ 1);
      if (std::isspace(static_cast<unsigned char>(content[i])) && name == "checkpoint.json")
        continue;  // spaces between the words of the manifest mean nothing
      write_file(file, damaged);
      EXPECT_TRUE(error_says([&] { read_checkpoint(path); }, {file})) << "byte " << i;
    }
    write_file(file, content.substr(0, content.size() / 2));
    EXPECT_TRUE(error_says([&] { read_checkpoint(path); }, {file}));
    write_file(file, content + "x");
    EXPECT_TRUE(error_says([&] { read_checkpoint(path); }, {file}));
    fs::remove(file);
    EXPECT_TRUE(error_says([&] { read_checkpoint(path); }, {file, "No such file"}));
    write_file(file, content);
    EXPECT_NO_THROW(read_checkpoint(path));
  }
}

TEST(Checkpoint, TheNewestIntactOneIsTakenAndDamageIsTold) {
  const TemporaryFolder folder;
  for (const int step : {5, 100, 1000000, 20}) save(folder.path(), step, "abc");
  fs::create_directories(folder.path("step_7"));      // no manifest
  fs::create_directories(folder.path("step_x"));      // not a checkpoint's name
  fs::create_directories(folder.path("step_9.tmp"));  // nor this
  const auto all = list_checkpoints(folder.path());
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0], folder.path("step_1000000"));
  EXPECT_EQ(all[3], folder.path("step_7"));
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_EQ(newest_intact(folder.path(), say)->step, 1000000);
  EXPECT_TRUE(said.empty());
  write_file(folder.path("step_1000000/weights"), "abd");
  EXPECT_EQ(newest_intact(folder.path(), say)->step, 100);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("step_1000000/weights: damaged: checksum"), std::string::npos) << said[0];
  EXPECT_FALSE(newest_intact(folder.path("nothing"), say));
}

TEST(Checkpoint, OldOnesAreRemovedAndTheNewestKept) {
  const TemporaryFolder folder;
  for (const int step : {1, 2, 3, 4}) save(folder.path(), step, "abc");
  remove_checkpoints(folder.path(), 4, 2);
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{"step_000003", "step_000004"}));
  remove_checkpoints(folder.path(), 4, 5);
  EXPECT_EQ(folder.entries(), 2);
}

// A run that went back to step 2 and has saved there: 3 and 4 belong to a future that it gave up.
TEST(Checkpoint, OfAFutureThatWasGivenUpGoFirst) {
  const TemporaryFolder folder;
  for (const int step : {1, 2, 3, 4}) save(folder.path(), step, "abc");
  remove_checkpoints(folder.path(), 2, 2);
  EXPECT_EQ(names(folder.path()), (std::vector<std::string>{"step_000001", "step_000002"}));
}

TEST(Checkpoint, OfTheSameStepReplacesTheEarlier) {
  const TemporaryFolder folder;
  save(folder.path(), 1, "old");
  save(folder.path(), 1, "new");
  EXPECT_EQ(read_file(read_checkpoint(folder.path("step_000001")).path + "/weights"), "new");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Checkpoint, CannotBeWrittenWhereAFileIsInTheWay) {
  const TemporaryFolder folder;
  write_file(folder.path("file"), "x");
  EXPECT_TRUE(error_says([&] { save(folder.path("file"), 1, "abc"); }, {folder.path("file")}));
  EXPECT_EQ(read_file(folder.path("file")), "x");
}

// A manifest whose own checksum is right but whose words are not: made by someone else.
TEST(Manifest, NamesFilesOfItsOwnFolderOnly) {
  const TemporaryFolder folder;
  const auto manifest = [&](const std::string& name) {
    const std::string body = R"({"files":[{"bytes":1,"checksum":"0000000000000000","name":")" +
                             name + R"("}],"format":1,"state":{},"step":3})";
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(body.data());
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx",
                  static_cast<unsigned long long>(checksum({bytes, body.size()})));
    return "{\"checksum\":\"" + std::string(hex) + "\"," + body.substr(1);
  };
  EXPECT_EQ(parse_manifest(manifest("weights"), "m").files.at(0).name, "weights");
  for (const char* name : {"../weights", "/etc/passwd", "a/b", "..", ".", "", "checkpoint.json"})
    EXPECT_TRUE(error_says([&] { parse_manifest(manifest(name), "m"); }, {"m", "not the name"}))
        << name;
}

TEST(Manifest, SaysWhatItLacks) {
  const auto refused = [](const std::string& json, const std::vector<std::string>& fragments) {
    return error_says([&] { parse_manifest(json, "m"); }, fragments);
  };
  EXPECT_TRUE(refused("", {"m", "not JSON"}));
  EXPECT_TRUE(refused("3", {"m", "format"}));
  EXPECT_TRUE(refused("{\"format\":2}", {"format", "2", "expected 1"}));
  EXPECT_TRUE(refused("{\"format\":1}", {"checksum"}));
  EXPECT_TRUE(refused("{\"format\":1,\"checksum\":\"12\"}", {"checksum", "16 hexadecimal"}));
  EXPECT_TRUE(refused("{\"format\":1,\"checksum\":\"0000000000000000\"}", {"damaged"}));
}

}  // namespace
}  // namespace aisc
