//===- LaunchTest.cpp - the place of a rank ------------------------------===//
#include "runtime/parallel/EnvironmentPlace.h"
#include "runtime/parallel/Mpi.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
Expected<std::optional<RankPlace>> placeOf(const std::map<std::string, std::string> &variables) {
  for (const char *name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "TRUN_JOB_SECRET", "TRUN_JOB_SECRET_FILE"})
    ::unsetenv(name);
  for (const auto &[name, value] : variables)
    ::setenv(name.c_str(), value.c_str(), 1);
  return placeFromEnvironment();
}
} // namespace

TEST(Launch, TorchrunsVariablesGiveAPlace) {
  auto place = placeOf({{"RANK", "3"},
                        {"WORLD_SIZE", "4"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "node0"},
                        {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(place.ok() && *place) << place.message();
  EXPECT_EQ((*place)->rank, 3u);
  EXPECT_EQ((*place)->size, 4u);
  EXPECT_EQ((*place)->localSize, 2u);
  EXPECT_EQ((*place)->address, "node0");
  EXPECT_EQ((*place)->port, 29500);
  // torchrun's own store listens at MASTER_PORT.
  place = placeOf({{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "a"},
                   {"MASTER_PORT", "29500"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                   {"TORCHELASTIC_RUN_ID", "job"}});
  ASSERT_TRUE(place.ok() && *place);
  EXPECT_EQ((*place)->port, 29501);
  EXPECT_EQ((*place)->job, "TORCHELASTIC_RUN_ID=job");
  EXPECT_NE((*place)->portName.find("MASTER_PORT=29500"), std::string::npos);
}

TEST(Launch, ASecretComesFromAVariableOrAFileThatOthersCannotRead) {
  const std::map<std::string, std::string> two{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  auto secretOf = [&](const std::map<std::string, std::string> &more) {
    std::map<std::string, std::string> variables = two;
    variables.insert(more.begin(), more.end());
    auto place = placeOf(variables);
    return place ? Expected<std::string>((*place)->trust.secret) : place.status();
  };
  const std::string path = testing::TempDir() + "job-secret", secret = "0123456789abcdef0123";
  auto write = [&](const std::string &text, mode_t mode) {
    std::ofstream(path) << text;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  };
  EXPECT_EQ(*secretOf({}), "");
  EXPECT_EQ(*secretOf({{"TRUN_JOB_SECRET", secret}}), secret);
  write(secret + "\n", 0600);
  EXPECT_EQ(*secretOf({{"TRUN_JOB_SECRET_FILE", path}}), secret) << "the line's end is none of it";
  write(secret, 0640);
  EXPECT_EQ(*secretOf({{"TRUN_JOB_SECRET_FILE", path}}), secret);
  write(secret, 0644);
  EXPECT_NE(secretOf({{"TRUN_JOB_SECRET_FILE", path}}).message().find("chmod 600"), std::string::npos);
  write("too short", 0600);
  EXPECT_NE(secretOf({{"TRUN_JOB_SECRET_FILE", path}}).message().find("9 characters, fewer than 16"),
            std::string::npos);
  write(std::string(5000, 'x'), 0600);
  EXPECT_FALSE(secretOf({{"TRUN_JOB_SECRET_FILE", path}}).ok());
  EXPECT_NE(secretOf({{"TRUN_JOB_SECRET", ""}}).message().find("0 characters"), std::string::npos);
  EXPECT_NE(secretOf({{"TRUN_JOB_SECRET_FILE", path + "-absent"}}).message().find("No such file"), std::string::npos);
  EXPECT_NE(secretOf({{"TRUN_JOB_SECRET_FILE", testing::TempDir()}}).message().find("not a file"), std::string::npos);
  EXPECT_NE(secretOf({{"TRUN_JOB_SECRET", secret}, {"TRUN_JOB_SECRET_FILE", path}}).message().find("both set"),
            std::string::npos);
  ::unlink(path.c_str());
}

TEST(Launch, VariablesThatMakeNoPlaceAreNamed) {
  auto none = placeOf({{"WORLD_SIZE", "2"}});
  EXPECT_TRUE(none.ok() && !*none);
  EXPECT_NE(placeOf({{"RANK", "0"}, {"WORLD_SIZE", "two"}}).message().find("WORLD_SIZE=two"), std::string::npos);
  EXPECT_NE(placeOf({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).message().find("RANK=2"), std::string::npos);
  EXPECT_NE(placeOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).message().find("MASTER_PORT"), std::string::npos);
  EXPECT_NE(placeOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}).message().find("MASTER_ADDR"),
            std::string::npos);
  auto changed = [](const std::string &name, const std::string &value) {
    std::map<std::string, std::string> variables{{"RANK", "1"},        {"WORLD_SIZE", "2"},       {"LOCAL_RANK", "1"},
                                                 {"MASTER_ADDR", "a"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}};
    variables[name] = value;
    return placeOf(variables).message();
  };
  EXPECT_EQ(changed("RANK", "0"), "");
  EXPECT_NE(changed("MASTER_ADDR", "").find("MASTER_ADDR is empty"), std::string::npos);
  EXPECT_NE(changed("MASTER_PORT", "0").find("MASTER_PORT=0"), std::string::npos);
  EXPECT_NE(changed("LOCAL_WORLD_SIZE", "0").find("LOCAL_WORLD_SIZE=0"), std::string::npos);
  EXPECT_NE(changed("LOCAL_RANK", "2").find("LOCAL_RANK=2"), std::string::npos);
}

TEST(Launch, LaunchersOfMpiAreKnownByTheirVariables) {
  auto startOf = [](const std::map<std::string, std::string> &variables) {
    for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMI_FD",
                             "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS"})
      ::unsetenv(name);
    for (const auto &[name, value] : variables)
      ::setenv(name.c_str(), value.c_str(), 1);
    return mpiFromEnvironment();
  };
  EXPECT_FALSE(startOf({}));
  EXPECT_FALSE(startOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})) << "a batch script is no rank";
  EXPECT_EQ(startOf({{"OMPI_COMM_WORLD_SIZE", "4"}})->size, 4u);
  EXPECT_EQ(startOf({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})->size, 2u);
  EXPECT_EQ(startOf({{"SLURM_STEP_NUM_TASKS", "16"}})->variable, "SLURM_STEP_NUM_TASKS=16");
  EXPECT_FALSE(startOf({{"SLURM_STEP_NUM_TASKS", "1"}})) << "srun of one process, without MPI";
  EXPECT_TRUE(startOf({{"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}}));
  auto unknown = startOf({{"PMIX_RANK", "0"}});
  ASSERT_TRUE(unknown);
  EXPECT_FALSE(unknown->size) << "MPI itself knows";
  startOf({});
}
