// Of programs with the address sanitizer and MPI: what has been loaded stays, so that the report of
// leaks can tell the plugins of MPI, which leak and are left out (lsan.supp), from the program.
extern "C" int dlclose(void*);
extern "C" int dlclose(void* /*handle*/) { return 0; }
