/* What happens when the program dies of a signal: terminal restored, one line on standard error, the log on disk. */
#ifndef APP_CRASH_H
#define APP_CRASH_H

/* Once, at the start of main, before any thread. */
void crash_install(void);
/* The file a crash would be written to; "" when there is no home. */
const char *crash_log_path(void);

#endif
