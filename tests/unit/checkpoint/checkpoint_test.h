// What every test of checkpoints includes and calls by its short name.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/faulty_file_system.h"
#include "tests/support/newest_valid.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint {

using lockstep::test_support::Fault;
using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Op;
using lockstep::test_support::TempDir;
using test_support::drain;
using test_support::large_model;
using test_support::newest_valid;
using test_support::odd_model;
using test_support::options_in;
using test_support::RankState;
using test_support::state_of;
using test_support::World;
using testing::HasSubstr;

inline FileSystem& disk() { return posix_file_system(); }

}  // namespace lockstep::checkpoint
