/* How busy the machine's GPU is with this process, as the kernel's drivers tell it without root:
 * engine clients in /proc/self/fdinfo (i915, xe, amdgpu), frequency and temperature in sysfs. What
 * cannot be read is NAN, with a reason. Any one thread at a time. */
#ifndef GPU_UTILISATION_H
#define GPU_UTILISATION_H

#include <stddef.h>

struct utilisation;

/* root: "" for this machine; tests give a folder that holds proc/ and sys/. NULL: no memory. */
struct utilisation *utilisation_new(const char *root);
void utilisation_free(struct utilisation *u);
/* Shares since the read before (the first gives NAN): use 0 .. 1 of the busiest engine, MHz, °C.
 * why: when use is NAN. Allocates nothing. */
void utilisation_read(struct utilisation *u, float *use, float *mhz, float *temperature, char *why,
                      size_t why_size);

#endif
