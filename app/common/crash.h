/* What happens when the program dies of a signal: terminal restored, one line on standard error,
 * the log on disk. And when a library runs out of memory that cannot handle that. */
#ifndef APP_COMMON_CRASH_H
#define APP_COMMON_CRASH_H

/* Once, at the start of main, before any thread. */
void crash_install(void);
/* Once, at the start of main: jansson continues as if an allocation had succeeded, so a failed one
 * ends the process with a line and the exit code of ERR_MEMORY. By then a chat is on disk as far as
 * it was shown, and a batch has written only whole lines. */
void crash_guard_libraries(void);

#endif
