/* Utilisation of the machine's GPU by this process, from the kernel's drivers without root: engine
 * clients in /proc/self/fdinfo (i915, xe, amdgpu), frequency and temperature in sysfs. Unreadable
 * values are NAN, with a reason. Any one thread at a time. */
#ifndef GPU_UTILISATION_H
#define GPU_UTILISATION_H

#include <stddef.h>

struct utilisation;

/* root: "" for this machine; tests pass a folder that contains proc/ and sys/. NULL: no memory. */
struct utilisation *utilisation_new(const char *root);
void utilisation_free(struct utilisation *u);
/* Values since the previous read (the first gives NAN): use 0 .. 1 of the busiest engine, MHz, °C.
 * why: set if use is NAN. Allocates nothing. */
void utilisation_read(struct utilisation *u, float *use, float *mhz, float *temperature, char *why,
                      size_t why_size);

#endif
