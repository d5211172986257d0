#include "app/run_log.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

// The lines of a file up to `last_step`, as `parse` reads them. A last line that lacks its end was
// cut off by a crash, and is left out.
template <class T, class F>
std::vector<T> read_lines(const std::string& path, std::int64_t last_step, F parse) {
  std::vector<T> found;
  const std::string text = read_file(path);
  std::size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    T row = parse(text.substr(begin, end - begin), fmt::format("{}: line {}", path, number));
    if (row.step <= last_step) found.push_back(std::move(row));
    begin = end + 1;
  }
  return found;
}

template <class T, class F>
std::string joined(const std::vector<T>& rows, F line_of) {
  std::string text;
  for (const T& row : rows) text += line_of(row) + "\n";
  return text;
}

// Not for programs that this one becomes: a lock belongs to whoever has the file open.
std::unique_ptr<std::FILE, int (*)(std::FILE*)> open_to_append(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "abe"),
                                                       std::fclose);
  if (!file) fail(path + ": cannot be written: " + std::strerror(errno));
  return file;
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
  if (row.evaluated()) json["validation_loss"] = row.validation_loss;
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
  if (json.contains("validation_loss")) row.validation_loss = number(json, "validation_loss", name);
  if (!json.contains("peak_bytes")) fail(name + ": \"peak_bytes\": expected an object");
  const nlohmann::json& peaks = json["peak_bytes"];
  for (std::size_t p = 0; p < kPurposeCount; ++p)
    row.peak_bytes[p] = whole(peaks, name_of(static_cast<Purpose>(p)), name);
  row.peak_bytes[kPurposeCount] = whole(peaks, "total", name);
  return row;
}

RunLock::RunLock(const std::string& folder) : file_(open_to_append(folder + "/lock")) {
  if (flock(fileno(file_.get()), LOCK_EX | LOCK_NB) != 0)
    fail(errno == EWOULDBLOCK ? folder + ": another process is writing to this run"
                              : folder + "/lock: cannot be locked: " + std::strerror(errno));
}

RunLog::RunLog(const std::string& folder)
    : rows_path_(folder + "/metrics.jsonl"),
      notes_path_(folder + "/notes.jsonl"),
      rows_file_(open_to_append(rows_path_)),
      notes_file_(open_to_append(notes_path_)) {}

RunLog::RunLog(const std::string& folder, std::int64_t last_step) : RunLog(folder) {
  rows_ = read_lines<StepRow>(rows_path_, last_step, step_row);
  notes_ = read_lines<Note>(notes_path_, last_step, note_of);
  write_file(rows_path_, joined(rows_, [](const StepRow& row) { return to_json(row); }));
  write_file(notes_path_, joined(notes_, [](const Note& note) { return to_json(note); }));
  rows_file_ = open_to_append(rows_path_);
  notes_file_ = open_to_append(notes_path_);
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
  rows_.push_back(row);
}

void RunLog::append(const Note& note) {
  write(notes_file_, to_json(note), notes_path_);
  notes_.push_back(note);
}

}  // namespace aisc
