#include "common/comm/mpi/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/system/process_limits.h"

namespace aisc {

bool has_mpi() { return true; }

}  // namespace aisc

namespace aisc::mpi {

void require(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(fmt::format("{}: {}", call, std::string_view(text, static_cast<std::size_t>(length))));
}

namespace {

// Measured of Open MPI 4.1: 20 files, and 4 MiB and a little of memory that ranks of a node share.
constexpr std::int64_t kMostFiles = 32, kSharedFileBytes = 5 << 20;

// Open MPI's setting, by MPI-3's tools interface; other libraries have none.
bool read_yields() {
  int level = 0, index = 0, count = 0, value = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &level) != MPI_SUCCESS) return false;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index("mpi_yield_when_idle", &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    if (count == 1) MPI_T_cvar_read(handle, &value);
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return value != 0;
}

}  // namespace

Session& Session::get() {
  static Session session;
  return session;
}

// MPI_Init() says of these limits, if it does, what a file in MPI's own sources could not do.
Session::Session() {
  require_open_files(kMostFiles, "launch: a rank");
  require_file_bytes(kSharedFileBytes, "launch: MPI, for what ranks share,");
  int level = 0, is_initialized = 0;
  require(MPI_Initialized(&is_initialized), "MPI_Initialized");  // by an attempt that went wrong
  if (is_initialized)
    require(MPI_Query_thread(&level), "MPI_Query_thread");
  else
    require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  require(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (level < MPI_THREAD_SERIALIZED)
    fail("launch: this MPI library does not let two threads take turns (MPI_THREAD_SERIALIZED)");
  require(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  require(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  require(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  if (const auto started = started_processes(); started && started->size != size_)
    fail(
        fmt::format("launch: {} started {} processes, of which MPI sees {}: the launcher and the "
                    "MPI library that this program was built with are of different kinds",
                    started->launcher, started->size, size_));
  const int* highest_tag = nullptr;
  int found = 0;
  require(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &highest_tag, &found), "MPI_Comm_get_attr");
  id_limit_ = (found ? *highest_tag : 32767) / kTagsPerId;
  board_ = std::make_unique<Board>(comm_, rank_);
  yields_ = read_yields();
}

void Session::take_id(std::int64_t id) {
  if (id >= id_limit_)
    fail(fmt::format("this MPI library has tags for {} communicators, no more", id_limit_));
  next_id = std::max(next_id, id + 1);  // others may have told of higher ones
}

std::int64_t Session::take_next_id() {
  const std::int64_t id = next_id;
  take_id(id);
  return id;
}

// When the process exits. A rank that calls exit() in the middle of a launch ends all of them:
// nobody would meet it any more.
Session::~Session() {
  if (running) {
    std::fprintf(stderr, "aisc: rank %d (process %d) called exit() within launch()\n", rank_,
                 getpid());
    MPI_Abort(comm_, EXIT_FAILURE);
  }
  if (broken) {
    board_.release();  // giving it back would wait for the rank that is gone
    return;
  }
  board_.reset();
  MPI_Comm_free(&comm_);
  MPI_Finalize();
}

}  // namespace aisc::mpi
