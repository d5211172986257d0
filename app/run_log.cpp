#include "app/run_log.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double number(const nlohmann::json& row, const char* key, const std::string& name) {
  if (!row.contains(key) || !(row[key].is_number() || row[key].is_null()))
    fail(fmt::format("{}: \"{}\": expected a number", name, key));
  // JSON has no word for infinity and writes null.
  return row[key].is_null() ? std::numeric_limits<double>::infinity() : row[key].get<double>();
}

std::int64_t whole(const nlohmann::json& row, const char* key, const std::string& name) {
  if (!row.contains(key) || !row[key].is_number_integer())
    fail(fmt::format("{}: \"{}\": expected a whole number", name, key));
  return row[key].get<std::int64_t>();
}

std::string to_json(const Note& note) {
  return dumped(Json{{"step", note.step}, {note.kind, note.text}});
}

Note note_of(const std::string& line, const std::string& name) {
  const nlohmann::json json = parse_json(line, name);
  Note note{.step = whole(json, "step", name)};
  for (const char* kind : {"sample", "event"})
    if (json.contains(kind) && json[kind].is_string()) {
      note.kind = kind;
      note.text = json[kind].get<std::string>();
      return note;
    }
  fail(name + ": expected \"sample\" or \"event\" as a text");
}

// Of each of so many groups of neighbours the rows of the lowest and of the highest loss, and the
// first and the last row of all. A loss that is no number counts as the highest. Evaluations stay,
// all of them where they are few.
std::vector<StepRow> thinned(const std::vector<StepRow>& rows, std::size_t groups) {
  const auto height = [](double loss) {
    return std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
  };
  const auto evaluations =
      std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.evaluated(); });
  const bool all_evaluations = static_cast<std::size_t>(evaluations) <= groups;
  std::vector<bool> stays(rows.size());
  stays.front() = stays.back() = true;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t begin = g * rows.size() / groups, end = (g + 1) * rows.size() / groups;
    std::size_t low = begin, high = begin, best = rows.size();
    for (std::size_t i = begin; i < end; ++i) {
      if (height(rows[i].loss) < height(rows[low].loss)) low = i;
      if (height(rows[i].loss) > height(rows[high].loss)) high = i;
      if (!rows[i].evaluated()) continue;
      if (all_evaluations) stays[i] = true;
      if (best == rows.size() || rows[i].validation_loss < rows[best].validation_loss) best = i;
    }
    stays[low] = stays[high] = true;
    if (best < rows.size()) stays[best] = true;
  }
  std::vector<StepRow> kept;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (stays[i]) kept.push_back(rows[i]);
  return kept;
}

// Calls f(line, its number) for each line of a file, one at a time in memory. A last line that
// lacks its end was cut off by a crash, and is left out.
template <class F>
void for_each_line(const std::string& path, F f) {
  const auto file = open_stream(path, 'r');
  char* line = nullptr;
  std::size_t room = 0;
  const std::unique_ptr<char*, void (*)(char**)> owner(&line, [](char** l) { std::free(*l); });
  for (std::int64_t number = 1;; ++number) {
    const ssize_t length = getline(&line, &room, file.get());
    if (length <= 0 || line[length - 1] != '\n') break;
    f(std::string(line, static_cast<std::size_t>(length - 1)), number);
  }
  if (std::ferror(file.get())) fail(path + ": cannot be read: " + std::strerror(errno));
}

// A name beside `path` that nothing has.
std::string name_aside(const std::string& path) {
  std::string name = path + ".damaged";
  for (int i = 2; std::filesystem::exists(name); ++i) name = fmt::format("{}.damaged.{}", path, i);
  return name;
}

}  // namespace

std::string to_json(const StepRow& row) {
  Json json{{"step", row.step},
            {"loss", row.loss},
            {"learning_rate", row.learning_rate},
            {"gradient_norm", row.gradient_norm},
            {"seconds", row.seconds},
            {"tokens_per_second", row.tokens_per_second},
            {"flops_per_second", row.flops_per_second}};
  if (const double utilisation = row.utilisation(); !std::isnan(utilisation)) {
    json["peak_flops"] = row.peak_flops;
    json["utilisation"] = utilisation <= 1 ? Json(utilisation) : Json();
  }
  if (!std::isnan(row.auxiliary_loss)) {
    json["auxiliary_loss"] = row.auxiliary_loss;
    json["dropped"] = row.dropped;
    json["busiest_expert"] = row.busiest;
  }
  if (!std::isnan(row.loss_scale)) {
    json["loss_scale"] = row.loss_scale;
    json["skipped"] = row.skipped;
  }
  if (row.phases)
    for (std::size_t i = 0; i < PhaseSeconds::kCount; ++i)
      json["seconds_of"][kPhaseNames[i]] = row.phases->of[i];
  if (row.evaluated()) json["validation_loss"] = row.validation_loss;
  for (const auto& [what, share] : row.right) json["right"][what] = share;
  for (std::size_t p = 0; p < kPurposeCount; ++p)
    json["peak_bytes"][name_of(static_cast<Purpose>(p))] = row.peak_bytes[p];
  json["peak_bytes"]["total"] = row.peak_bytes[kPurposeCount];
  return dumped(json);
}

StepRow step_row(const std::string& text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name);
  StepRow row;
  row.step = whole(json, "step", name);
  row.loss = number(json, "loss", name);
  row.learning_rate = number(json, "learning_rate", name);
  row.gradient_norm = number(json, "gradient_norm", name);
  row.seconds = number(json, "seconds", name);
  row.tokens_per_second = number(json, "tokens_per_second", name);
  // Rows of earlier versions have neither.
  if (json.contains("flops_per_second"))
    row.flops_per_second = number(json, "flops_per_second", name);
  if (json.contains("peak_flops")) row.peak_flops = number(json, "peak_flops", name);
  if (json.contains("seconds_of")) {
    row.phases.emplace();
    for (std::size_t i = 0; i < PhaseSeconds::kCount; ++i)
      row.phases->of[i] = number(json["seconds_of"], kPhaseNames[i], name);
  }
  if (json.contains("auxiliary_loss")) {
    row.auxiliary_loss = number(json, "auxiliary_loss", name);
    row.dropped = number(json, "dropped", name);
    row.busiest = number(json, "busiest_expert", name);
  }
  if (json.contains("loss_scale")) {
    row.loss_scale = number(json, "loss_scale", name);
    row.skipped = json.contains("skipped") && json["skipped"] == true;
  }
  if (json.contains("validation_loss")) row.validation_loss = number(json, "validation_loss", name);
  if (json.contains("right")) {
    if (!json["right"].is_object()) fail(name + ": \"right\": expected an object");
    for (const auto& [what, share] : json["right"].items())
      row.right.emplace_back(what, number(json["right"], what.c_str(), name));
  }
  if (!json.contains("peak_bytes")) fail(name + ": \"peak_bytes\": expected an object");
  const nlohmann::json& peaks = json["peak_bytes"];
  for (std::size_t p = 0; p < kPurposeCount; ++p)
    row.peak_bytes[p] = whole(peaks, name_of(static_cast<Purpose>(p)), name);
  row.peak_bytes[kPurposeCount] = whole(peaks, "total", name);
  return row;
}

RunLock::RunLock(const std::string& folder) : file_(open_stream(folder + "/lock", 'a')) {
  if (flock(fileno(file_.get()), LOCK_EX | LOCK_NB) != 0)
    fail(errno == EWOULDBLOCK ? folder + ": another process is writing to this run"
                              : folder + "/lock: cannot be locked: " + std::strerror(errno));
}

RunLog::RunLog(const std::string& folder)
    : rows_path_(folder + "/metrics.jsonl"),
      notes_path_(folder + "/notes.jsonl"),
      rows_file_(open_stream(rows_path_, 'a')),
      notes_file_(open_stream(notes_path_, 'a')) {}

RunLog::RunLog(const std::string& folder, std::int64_t last_step, const std::string& later)
    : RunLog(folder) {
  read_back<StepRow>(rows_path_, last_step, later, step_row);
  read_back<Note>(notes_path_, last_step, later, note_of);
  rows_file_ = open_stream(rows_path_, 'a');
  notes_file_ = open_stream(notes_path_, 'a');
}

// One pass: lines up to `last_step` are kept and copied as they are, later ones go to `later`.
template <class T, class F>
void RunLog::read_back(const std::string& path, std::int64_t last_step, const std::string& later,
                       F parse) {
  AtomicFile copy(path);
  std::optional<AtomicFile> rest;
  if (!later.empty()) rest.emplace(later + path.substr(path.rfind('/')));
  std::int64_t damaged = 0;
  std::string first_damage;
  for_each_line(path, [&](const std::string& line, std::int64_t number) {
    std::optional<T> item;
    try {
      item = parse(line, fmt::format("{}: line {}", path, number));
    } catch (const Error& e) {
      if (damaged++ == 0) first_damage = e.what();
      return;
    }
    const std::string text = line + "\n";
    if (item->step > last_step) {
      if (rest) rest->write(text.data(), text.size());
      return;
    }
    keep(*item);
    copy.write(text.data(), text.size());
  });
  if (rest) rest->commit();
  if (damaged > 0) {
    const std::string aside = name_aside(path);
    std::filesystem::copy_file(path, aside);
    remarks_.push_back(fmt::format("{}; {} damaged line{} left out, and the file as it was is {}",
                                   first_damage, damaged, damaged == 1 ? " is" : "s are", aside));
  }
  copy.commit();
}

void RunLog::write(const File& file, const std::string& line, const std::string& path) {
  const std::string text = line + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fflush(file.get()) != 0 || !written)
    fail(path + ": cannot be written: " + std::strerror(errno));
}

void RunLog::sync() {
  for (const File* file : {&rows_file_, &notes_file_})
    if (fsync(fileno(file->get())) != 0)
      fail(rows_path_ + ": cannot be written to the disk: " + std::strerror(errno));
}

void RunLog::append(const StepRow& row) {
  write(rows_file_, to_json(row), rows_path_);
  keep(row);
}

void RunLog::append(const Note& note) {
  write(notes_file_, to_json(note), notes_path_);
  keep(note);
}

void RunLog::keep(const StepRow& row) {
  ++totals_.rows;
  totals_.seconds += row.seconds;
  for (std::size_t p = 0; p < row.peak_bytes.size(); ++p)
    totals_.peak_bytes[p] = std::max(totals_.peak_bytes[p], row.peak_bytes[p]);
  rows_.push_back(row);
  if (rows_.size() > kMostRows) rows_ = thinned(rows_, kMostRows / 8);
}

void RunLog::keep(const Note& note) {
  notes_.push_back(note);
  if (notes_.size() <= kMostNotes) return;
  bool odd = false;  // the first sample stays
  std::erase_if(notes_, [&](const Note& n) { return n.kind == "sample" && (odd = !odd, !odd); });
}

}  // namespace aisc
