/* What happens when the program dies of a signal: terminal restored, one line on standard error,
 * the log on disk. And when a library meets the end of memory that it would not survive. */
#ifndef APP_COMMON_CRASH_H
#define APP_COMMON_CRASH_H

/* Once, at the start of main, before any thread. */
void crash_install(void);
/* Once, at the start of main: jansson goes on as if it had got the memory that it asked for, so a
 * request that fails ends the process with a line and the exit code of ERR_MEMORY. What a chat
 * showed is on the disk by then, what a batch wrote is whole lines. */
void crash_guard_libraries(void);

#endif
