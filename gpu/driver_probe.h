/* Drivers are other people's code in this process: each is tried in a process of its own before it is loaded here, so that one which crashes
 * or hangs cannot take the program along. Private to gpu/ but for what opencl.h declares. Any thread (a mutex inside). */
#ifndef GPU_GUARD_H
#define GPU_GUARD_H

#include <stddef.h>

/* Before the first OpenCL call: tries the installed drivers (once per version of a driver where there is a cache folder) and keeps the loader
 * from those that are bad. out: a line that names them, or "". Does nothing until opencl_guard was called. */
void guard_drivers(char *out, size_t size);

#endif
