/* Loaded before a test program: getppid() forks, and answers as fork() does. Safe Rust has no fork of its own. */
#include <sys/types.h>
#include <unistd.h>

pid_t getppid(void) { return fork(); }
