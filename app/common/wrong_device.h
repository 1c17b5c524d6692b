/* The first compute device that an audit found to compute wrongly, for the exit code: the run goes
 * on without it, whatever the mode. Any thread. */
#ifndef APP_COMMON_WRONG_DEVICE_H
#define APP_COMMON_WRONG_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

/* the program's exit code then, if all else went well; its meaning, for the manual */
#define WRONG_DEVICE_EXIT 6
#define WRONG_DEVICE_MEANING                                                                  \
    "the output is complete, but a compute device computed wrongly and was taken out of use " \
    "(--audit)"

void wrong_device_note(const char *line);
/* At the end of a run: whether there was one, and a line for standard error. */
bool wrong_device_found(char *line, size_t size);

#endif
