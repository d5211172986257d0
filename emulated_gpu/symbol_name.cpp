// The name of a kernel for an error: read from the symbols in the program's own file, since the
// dynamic linker knows no functions of unnamed namespaces.
#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "emulated_gpu/block.h"

namespace aisc::emulated_gpu {
namespace {

template <class T>
std::vector<T> read(std::ifstream& file, std::uint64_t offset, std::uint64_t count) {
  std::vector<T> values(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(count * sizeof(T)));
  return values;
}

// Where the program lies in memory: its addresses are written relative to that.
std::uintptr_t program_base() {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &base);
  return base;
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

}  // namespace

std::string symbol_name(const void* function) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(function) - program_base();
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto header = read<ElfW(Ehdr)>(file, 0, 1);
  if (!file || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0)
    return fmt::format("at {}", function);
  const auto sections = read<ElfW(Shdr)>(file, header[0].e_shoff, header[0].e_shnum);
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || !file) continue;
    const auto& text = sections[section.sh_link];
    const auto names = read<char>(file, text.sh_offset, text.sh_size);
    for (const auto& symbol :
         read<ElfW(Sym)>(file, section.sh_offset, section.sh_size / sizeof(ElfW(Sym))))
      if (symbol.st_value == address && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
        return demangled(names.data() + symbol.st_name);
  }
  return fmt::format("at {}", function);
}

}  // namespace aisc::emulated_gpu
