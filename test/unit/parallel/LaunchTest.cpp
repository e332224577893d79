//===- LaunchTest.cpp - the place of a rank ------------------------------===//
#include "runtime/parallel/Launch.h"
#include "runtime/parallel/Mpi.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <map>

using namespace tcc;
using namespace tcc::runtime;

namespace {
Expected<std::optional<RankPlace>> placeOf(const std::map<std::string, std::string> &variables) {
  for (const char *name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                           "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID"})
    ::unsetenv(name);
  for (const auto &[name, value] : variables)
    ::setenv(name.c_str(), value.c_str(), 1);
  return placeFromEnvironment();
}
} // namespace

TEST(Launch, ProcessorsAreDividedWithoutARest) {
  const std::vector<int> eight{0, 1, 2, 3, 8, 9, 10, 11};
  EXPECT_EQ(shareOf(eight, 0, 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(shareOf(eight, 1, 3), (std::vector<int>{2, 3, 8}));
  EXPECT_EQ(shareOf(eight, 2, 3), (std::vector<int>{9, 10, 11}));
  EXPECT_EQ(shareOf({4, 5}, 2, 3), std::vector<int>{4}) << "more ranks than processors take turns";
}

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
  // torchrun's own store listens at that port.
  place = placeOf({{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "a"},
                   {"MASTER_PORT", "29500"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                   {"TORCHELASTIC_RUN_ID", "job"}});
  ASSERT_TRUE(place.ok() && *place);
  EXPECT_EQ((*place)->port, 29501);
  EXPECT_NE((*place)->token, 0u);
}

TEST(Launch, VariablesThatMakeNoPlaceAreNamed) {
  auto none = placeOf({{"WORLD_SIZE", "2"}});
  EXPECT_TRUE(none.ok() && !*none);
  EXPECT_NE(placeOf({{"RANK", "0"}, {"WORLD_SIZE", "two"}}).message().find("WORLD_SIZE=two"), std::string::npos);
  EXPECT_NE(placeOf({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).message().find("RANK=2"), std::string::npos);
  EXPECT_NE(placeOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).message().find("MASTER_PORT"), std::string::npos);
  EXPECT_NE(placeOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}).message().find("MASTER_ADDR"),
            std::string::npos);
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
